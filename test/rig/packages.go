package rig

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Missing are those of Debian's packages that are not installed, each once.
func Missing(packages ...string) (missing []string) {
	for _, p := range packages {
		out, err := exec.Command("dpkg-query", "-W", "-f", "${Status}", p).Output()
		if (err != nil || !strings.Contains(string(out), "install ok installed")) && !slices.Contains(missing, p) {
			missing = append(missing, p)
		}
	}
	return missing
}

// Install brings those of Debian's packages that are missing.
func Install(packages ...string) error {
	missing := Missing(packages...)
	if len(missing) == 0 {
		return nil
	}
	for _, args := range [][]string{{"update", "-qq"}, append([]string{"install", "-qq", "-y", "--no-install-recommends"}, missing...)} {
		apt := exec.Command("apt-get", args...)
		apt.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := apt.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}
