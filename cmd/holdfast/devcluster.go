package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast/internal/devcluster"
	"holdfast/internal/mgmt/ctl"
)

func devClusterCommand(s ctl.Streams) *cobra.Command {
	o := devcluster.Options{Out: s.Out}
	cmd := &cobra.Command{
		Use:   "dev-cluster",
		Short: "Run a cluster of three nodes on this machine, for trying",
		Long: "Runs three nodes that form a cluster, as processes of their own on loopback, and shows what they print with their names before it. " +
			"SIGTERM or SIGINT stops them one after the other; a second one ends them at once. The same folder started again is the same cluster.",
		Example: "  holdfast dev-cluster\n" +
			"  holdfast dev-cluster --data /tmp/three --base-port 6672 --restart",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("base-port") && (o.BasePort < 1 || o.BasePort > devcluster.MaxBasePort) {
				return usage("--base-port must be 1 to %d", devcluster.MaxBasePort)
			}
			var err error
			if o.Program, err = os.Executable(); err != nil {
				return fmt.Errorf("Error: %w", err)
			}
			o.Called = asCalled("holdfast", os.Args[0])
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			force := make(chan struct{})
			o.Force = force
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
			defer signal.Stop(signals)
			go func() {
				select {
				case <-signals:
					cancel()
				case <-ctx.Done():
					return
				}
				<-signals
				close(force)
			}()
			if err := devcluster.Run(ctx, o); err != nil {
				return fmt.Errorf("Error: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Folder, "data", "holdfast-dev", "folder of the cluster, with the data folders of its nodes")
	cmd.Flags().IntVar(&o.BasePort, "base-port", 0, "port of the first node for clients; the others have the next ones, HTTP 10000 more, links between nodes 20000 more")
	cmd.Flags().BoolVar(&o.Restart, "restart", false, "start nodes again that end")
	cmd.Flags().Lookup("base-port").DefValue = strconv.Itoa(devcluster.DefaultBasePort) // what the help shows; 0 is that of the folder
	return cmd
}
