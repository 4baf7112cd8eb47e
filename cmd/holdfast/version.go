package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"holdfast/internal/mgmt/ctl"
)

// release is the version of this tree; a build may set it with -ldflags "-X main.release=...".
var release = "0.1.0"

// version is the release and, where the build knows it, the commit it was made from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	commit, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			commit = "+" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ".changed"
		}
	}
	if commit == "" {
		return release
	}
	return release + commit + changed
}

// versionLine is the version with what it was built by and for.
func versionLine() string {
	return fmt.Sprintf("holdfast %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func versionCommand(s ctl.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(s.Out, versionLine())
			return err
		},
	}
}
