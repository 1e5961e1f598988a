"""Offline: python -m tests.fuzz.try FIRST LAST [all]"""
import collections, random, shutil, sys, tempfile, time, re
from pathlib import Path
import torch
torch.set_num_threads(1)
import nps.jobs.sweep
from tests.fuzz import cases
from tests.fuzz.damage import damages_of
nps.jobs.sweep.Process = cases.Inline
import nps.inspect.figures
nps.inspect.figures.available = lambda: False

def main():
    first, last = int(sys.argv[1]), int(sys.argv[2])
    root = Path(tempfile.mkdtemp(dir="/tmp"))
    began = time.monotonic()
    cases.make_all(root / "made")
    print("made", time.monotonic() - began, flush=True)
    for kind in ("half", "sweep", "own"):
        for name in cases.commands_of(kind, root):
            shutil.rmtree(root / "case", ignore_errors=True)
            shutil.copytree(root / "made" / kind, root / "case")
            t = time.monotonic()
            o = cases.call(cases.commands_of(kind, root / "case")[name])
            print(kind, name, o.code, o.trouble[-300:], o.err[-200:] if o.code else "", f"{time.monotonic()-t:.3f}", flush=True)
    found = collections.defaultdict(list)
    slow = []
    took = collections.Counter()
    n = 0
    began = time.monotonic()
    for seed in range(first, last):
        if time.monotonic() - began > float(sys.argv[3]): print("stopped at", seed); break
        draw = random.Random(seed)
        kind = draw.choice(("half", "sweep", "own"))
        shutil.rmtree(root / "case", ignore_errors=True)
        shutil.copytree(root / "made" / kind, root / "case")
        case = root / "case"
        paths = [p for p in sorted(case.rglob("*")) if ".lock" != p.name]
        path = draw.choice(paths)
        damage = draw.choice(damages_of(path))
        try:
            damage(draw, path)
        except Exception as e:
            print("bad damage", seed, damage.__name__, path, e)
            continue
        shutil.copytree(case, root / "damaged", symlinks=True) if False else None
        for name, act in cases.commands_of(kind, case).items():
            n += 1
            t = time.monotonic()
            o = cases.call(act)
            t = time.monotonic() - t
            took[kind, name] += t
            if t > 2: slow.append((t, seed, kind, path.name, damage.__name__, name))
            if o.trouble:
                lines = o.trouble.strip().splitlines()
                where = [l.strip() for l in lines if "src/nps" in l]
                key = (where[-1] if where else "", re.sub(r"\d+", "N", lines[-1])[:150])
                found[key].append((seed, kind, str(path.relative_to(case)), damage.__name__, name))
        for p in [case, *case.rglob("*")]:
            try: p.chmod(0o755)
            except OSError: pass
    print(n, "commands", time.monotonic() - began, "rss", cases.resident() / 2**20)
    for key, examples in sorted(found.items(), key=lambda kv: -len(kv[1])):
        print(len(examples), key)
        for e in examples[:3]: print("      ", e)
    print(sum(map(len, found.values())), "troubles")
    for s in slow: print("slow", s)
    print(took.most_common(12))
    shutil.rmtree(root)
main()
