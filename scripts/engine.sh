# A Docker engine for tests. To be sourced.
#
# Where one answers already, that is used. Otherwise engine_up starts one that several runs share: each holds a lock on
# $engine_dir/users for as long as it needs the engine, and the last to go stops it.

engine_dir=/run/deskagent-engine

engine_up() {
    if docker info >/dev/null 2>&1 && [ ! -e "$engine_dir/dockerd.pid" ]; then
        return 0
    fi
    [ "$(id -u)" = 0 ] || {
        echo "engine: no Docker engine answers, and to start one needs root" >&2
        return 1
    }
    mkdir -p "$engine_dir"
    exec 9>"$engine_dir/users"
    flock --shared 9
    (
        flock 8
        docker info >/dev/null 2>&1 && exit 0
        # A pid file that a killed engine left would keep the next from starting.
        kill -0 "$(cat "$engine_dir/dockerd.pid" 2>/dev/null)" 2>/dev/null || rm -f "$engine_dir/dockerd.pid"
        # The engine must not hold our locks. 1400 bytes get through where networks are nested.
        setsid dockerd --pidfile "$engine_dir/dockerd.pid" --mtu 1400 >"$engine_dir/log" 2>&1 </dev/null 8>&- 9>&- &
        for _ in $(seq 300); do
            docker info >/dev/null 2>&1 && exit 0
            sleep 0.1
        done
        tail -n 20 "$engine_dir/log" >&2
        echo "engine: dockerd does not answer; its last words are above" >&2
        exit 1
    ) 8>"$engine_dir/start"
}

engine_down() {
    # Nobody else may be using it, and it has to be ours.
    flock --exclusive --nonblock 9 2>/dev/null || return 0
    local pid
    pid=$(cat "$engine_dir/dockerd.pid" 2>/dev/null) || return 0
    kill "$pid" 2>/dev/null || return 0
    for _ in $(seq 300); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.1
    done
    echo "engine: dockerd ($pid) does not end" >&2
}
