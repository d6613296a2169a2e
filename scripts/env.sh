# Finds the Go that the scripts use. To be sourced, from the root of the project.

# The patch release that scripts/setup fetches where there is no Go that is new enough.
go_patch=8

# Where it puts it.
go_dir="${XDG_CACHE_HOME:-$HOME/.cache}/deskagent/go"

# The language version that go.mod asks for, such as 1.26.
go_wanted() { sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod; }

go_arch() {
    case "$(uname -m)" in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
    esac
}

# find_go puts a Go that can build this module first in PATH, and fails when there is none.
find_go() {
    local dir
    for dir in "" "$go_dir/bin" /usr/local/go/bin; do
        if PATH="${dir:+$dir:}$PATH" GOTOOLCHAIN=local go list -m >/dev/null 2>&1; then
            PATH="${dir:+$dir:}$PATH"
            export PATH GOTOOLCHAIN=local
            return 0
        fi
    done
    return 1
}
