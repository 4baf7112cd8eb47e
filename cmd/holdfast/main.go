// Command holdfast is the broker and everything that goes with it: serve runs a node, ctl looks into one, dump reads the
// log of one that is stopped, config checks a configuration file, perf puts load on any broker, dev-cluster runs three nodes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"holdfast/internal/mgmt/ctl"
)

func main() { os.Exit(run(os.Args[1:], ctl.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})) }

// run executes the command line and gives the exit code.
func run(args []string, s ctl.Streams) int {
	root := &cobra.Command{
		Use:               "holdfast",
		Short:             "A message broker that speaks AMQP 0-9-1",
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return usage("unknown command %q; did you mean %q?", args[0], near[0])
			}
			return usage("unknown command %q; see %s --help", args[0], cmd.CommandPath())
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate(versionLine())
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage("%v; see %s --help", err, cmd.CommandPath()) })
	root.AddCommand(serveCommand(s), ctlCommand(s), dumpCommand(s), configCommand(s), perfCommand(s), devClusterCommand(s), versionCommand(s))
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	fmt.Fprintln(s.Err, err)
	var known *ctl.Error
	if errors.As(err, &known) {
		return known.Code
	}
	return 1
}

// usage is the error for a command line that makes no sense.
func usage(format string, args ...any) error {
	return &ctl.Error{Code: ctl.ExitUsage, Text: "Error: " + fmt.Sprintf(format, args...)}
}

// noArguments refuses arguments with the exit code of a wrong command line.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, and there is %q", cmd.CommandPath(), args[0])
	}
	return nil
}
