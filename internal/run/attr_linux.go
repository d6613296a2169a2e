package run

import (
	"os/exec"
	"syscall"
)

func setAttributes(cmd *exec.Cmd, outlives bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !outlives {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
}
