package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/test/rig"
)

// build compiles the command out of a folder.
func build(ctx context.Context, source, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", to, "./cmd/holdfast")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", source, err, out)
	}
	return nil
}

func git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = rig.Root()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// HeadCommit names the commit of this tree, and says if it was changed since.
func HeadCommit() string {
	commit, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "unknown"
	}
	if changed, err := git("status", "--porcelain", "--", "cmd", "internal", "go.mod"); err == nil && changed != "" {
		commit += "+changed"
	}
	return commit
}

// buildCommit compiles another commit out of a copy of its own.
func buildCommit(ctx context.Context, commit, dir string) (binary, full string, err error) {
	full, err = git("rev-parse", "--short=12", commit+"^{commit}")
	if err != nil {
		return "", "", err
	}
	source := filepath.Join(dir, "source-"+full)
	binary = filepath.Join(dir, "holdfast-"+full)
	if err := os.MkdirAll(source, 0o755); err != nil {
		return "", "", err
	}
	archive := exec.CommandContext(ctx, "git", "archive", full)
	archive.Dir = rig.Root()
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", source)
	pipe, err := archive.StdoutPipe()
	if err != nil {
		return "", "", err
	}
	var errs bytes.Buffer
	unpack.Stdin, unpack.Stderr, archive.Stderr = io.Reader(pipe), &errs, &errs
	if err := archive.Start(); err != nil {
		return "", "", err
	}
	err = unpack.Run()
	if e := archive.Wait(); err == nil {
		err = e
	}
	if err != nil {
		return "", "", fmt.Errorf("copying commit %s: %w\n%s", commit, err, errs.String())
	}
	return binary, full, build(ctx, source, binary)
}
