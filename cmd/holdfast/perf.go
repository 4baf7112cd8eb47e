package main

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast/internal/mgmt/ctl"
	"holdfast/internal/perf"
)

// perfCommand leaves the arguments to perf: its options are named as PerfTest's, several letters after one dash.
func perfCommand(s ctl.Streams) *cobra.Command {
	return &cobra.Command{
		Use:                "perf [SCENARIO] [OPTIONS]",
		Short:              "Put load on any AMQP 0-9-1 broker and say how fast it was",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer cancel()
			err := perf.Main(ctx, args, s.Out)
			var wrong *perf.UsageError
			switch {
			case err == nil:
				return nil
			case errors.As(err, &wrong):
				return usage("%v", err)
			}
			return fmt.Errorf("Error: %w", err)
		},
	}
}
