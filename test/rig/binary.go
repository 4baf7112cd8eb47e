package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// BinaryEnv names the environment variable with the path of a binary that is
// built already.
const BinaryEnv = "HOLDFAST_BINARY"

// Root is the top folder of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Binary is the path of the broker's binary: the one named by the environment,
// or else one built into dir.
func Binary(dir string) (string, error) {
	if path := os.Getenv(BinaryEnv); path != "" {
		return path, nil
	}
	path := filepath.Join(dir, "holdfast")
	build := exec.Command("go", "build", "-o", path, "./cmd/holdfast")
	build.Dir = Root()
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the broker: %w\n%s", err, out)
	}
	return path, nil
}
