package main

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"holdfast/internal/config"
	"holdfast/internal/mgmt/ctl"
	"holdfast/internal/node"
	"holdfast/internal/vfs"
)

func dumpCommand(s ctl.Streams) *cobra.Command {
	var data, salvage string
	var groups []uint
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Show what the log of a stopped node holds, or copy messages out of a damaged one",
		Long: "Shows what the log of a stopped node holds. With --salvage, copies every whole message of the damaged queues (of all queues if the " +
			"catalog is damaged) into files, one a queue, a line of JSON for each message. Nothing in the data folder is changed.",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			log := slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
			if salvage == "" {
				if len(groups) > 0 {
					return usage("--group goes with --salvage")
				}
				w := bufio.NewWriter(s.Out)
				if err := errors.Join(node.Dump(vfs.OS(), data, w, log), w.Flush()); err != nil {
					return dumpError(err)
				}
				return nil
			}
			var wanted []uint64
			for _, g := range groups {
				wanted = append(wanted, uint64(g))
			}
			copied, err := node.Salvage(vfs.OS(), data, salvage, wanted, log)
			for _, g := range copied {
				fmt.Fprintf(s.Out, "group %d: %d messages and %d chunks of large bodies in %s\n", g.Group, g.Messages, g.Chunks, g.File)
			}
			if err != nil {
				return dumpError(err)
			}
			if len(copied) == 0 {
				fmt.Fprintln(s.Out, "No queue is damaged; --group names one to copy out all the same.")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&data, "data", config.Default().DataDir, "data folder of the node")
	cmd.Flags().StringVar(&salvage, "salvage", "", "folder to copy messages to")
	cmd.Flags().UintSliceVar(&groups, "group", nil, "numbers of the groups to copy out, as dump prints them, instead of those that are damaged")
	cmd.Flags().Lookup("group").DefValue = "" // the help shows no default
	return cmd
}

func dumpError(err error) error {
	hint := ""
	if errors.Is(err, node.ErrInUse) {
		hint = "\nA running node cannot be dumped: stop it first"
	}
	return fmt.Errorf("Error: %w%s", err, hint)
}
