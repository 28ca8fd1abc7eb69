"""Ask 300 personas one question with a plain script: aiohttp, a semaphore, SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
import sys

import aiohttp

ASKED = "Turn 0. Which of Parks, Jobs, Streets should the city fund? Name one."
PERSONA = (
    "You are participant {n}, a person with a life of some length, who is {age} years old and "
    "lives in a quarter with opinions of its own about trees, work and traffic. "
) * 5


async def main(url: str, path: str, people: int, concurrency: int) -> None:
    """Ask all participants and store each reply when it arrives."""
    gate = asyncio.Semaphore(concurrency)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE replies (person INTEGER, said TEXT)")
    async with aiohttp.ClientSession() as session:

        async def ask(n: int) -> None:
            system = PERSONA.format(n=n, age=18 + n % 70)
            messages = [{"role": "system", "content": system}, {"role": "user", "content": ASKED}]
            body = {"model": "test-model", "messages": messages}
            async with gate, session.post(f"{url}/chat/completions", json=body) as reply:
                said = (await reply.json())["choices"][0]["message"]["content"]
            db.execute("INSERT INTO replies VALUES (?, ?)", (n, said))
            db.commit()

        await asyncio.gather(*(ask(n) for n in range(people)))
    db.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
