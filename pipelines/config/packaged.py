"""List the configurations, presets and searches that come with the package, or print one of them.

vse configs flickr8k > mine.yaml
"""

from rich.table import Table

from pipelines.runtime.cli import CommandParser, console, packaged, run_command, say


def main() -> None:
    """Read the command line; list what there is, or print a configuration or a search."""
    parser = CommandParser()
    parser.add_argument("name", nargs="?", help="print this configuration, preset or search")
    name = parser.parse_args().name
    if name is None:
        for folder, used in (
            ("data", "--config NAME"),
            ("presets", "preset: NAME"),
            ("searches", "tune --search NAME"),
        ):
            table = Table("name", "what it is", title=used, title_justify="left", show_edge=False)
            for each, path in packaged(folder).items():
                comments = path.read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
                about = [line.removeprefix("#").strip() for line in comments if line.startswith("#")]
                table.add_row(each, " ".join(about).partition(". ")[0])
            console().print(table, "")
        return
    found = {**packaged("searches"), **packaged("presets"), **packaged("data")}
    if name not in found:
        parser.error(f"nothing of the name {name!r} comes with the package; without a name all are listed")
    say(found[name].read_text(encoding="utf-8").rstrip())


if __name__ == "__main__":
    run_command(main)
