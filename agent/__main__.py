"""`python -m weaklink.agent`: the same command, for launchers that start modules (`torchrun -m`)."""

from weaklink.agent.cli.main import main

if __name__ == "__main__":
    main()
