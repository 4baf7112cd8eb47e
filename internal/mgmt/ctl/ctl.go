package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// run is one run of a command: the common flags, and the node.
type run struct {
	Streams
	data      string
	vhost     string
	formatter string
	timeout   float64 // seconds
	quiet     bool
	silent    bool
	noHeaders bool

	client *client
	ctx    context.Context
	whole  context.Context // without the timeout
}

// Command is `ctl`. Its errors are *Error; data is the data folder where --data does not name one.
func Command(s Streams, data string) *cobra.Command {
	r := &run{Streams: s}
	root := &cobra.Command{
		Use:           "ctl",
		Short:         "Look into and manage a running node",
		Long:          "Looks into and manages the running node of a data folder. What rabbitmqctl has too has its name, columns and exit codes.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return usagef("command %q not found; did you mean %q?", args[0], near[0])
			}
			return usagef("command %q not found; see %s --help", args[0], cmd.CommandPath())
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usagef("%v; see %s --help", err, cmd.CommandPath()) })
	f := root.PersistentFlags()
	f.StringVar(&r.data, "data", data, "data folder of the node")
	f.StringVarP(&r.vhost, "vhost", "p", "/", "virtual host")
	f.StringVar(&r.formatter, "formatter", "table", "table, pretty_table, csv or json")
	f.Float64VarP(&r.timeout, "timeout", "t", 60, "seconds to wait for the node")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "print no informational lines")
	f.BoolVarP(&r.silent, "silent", "s", false, "print no informational lines and no table headers")
	f.BoolVar(&r.noHeaders, "no-table-headers", false, "print no table headers")
	for _, group := range [][]*command{listCommands(), userCommands(), policyCommands(), queueCommands(), nodeCommands(), clusterCommands(), appCommands(), quorumCommands(), alarmCommands()} {
		for _, c := range group {
			root.AddCommand(r.cobra(c))
		}
	}
	return root
}

// command is one command of ctl.
type command struct {
	use   string // name and arguments
	short string
	long  string
	least int // arguments
	most  int // -1: any number
	// pretty says that a table has a frame unless another form was asked for, as with rabbitmq-queues.
	pretty bool
	flags  func(*cobra.Command)
	run    func(r *run, args []string) error
}

func (r *run) cobra(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use: c.use, Short: c.short, Long: c.long,
		SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) < c.least:
				return usagef("not enough arguments\nUsage: %s", cmd.UseLine())
			case c.most >= 0 && len(args) > c.most:
				return usagef("too many arguments\nUsage: %s", cmd.UseLine())
			}
			if _, ok := formatters[r.formatter]; !ok {
				return usagef("formatter %q is not one of table, pretty_table, csv and json", r.formatter)
			}
			if r.timeout <= 0 {
				return usagef("the timeout must be above 0 seconds")
			}
			if c.pretty && !cmd.Flags().Changed("formatter") {
				r.formatter = "pretty_table"
			}
			wait := time.Duration(r.timeout * float64(time.Second))
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			r.ctx, r.whole, r.client = ctx, cmd.Context(), newClient(r.data, wait)
			err := exitCode(c.run(r, args), ExitData)
			if r.client.stale != "" {
				fmt.Fprintf(r.Err, "Warning: this may be out of date: %s\n", r.client.stale)
			}
			if err == nil && r.client.lacks != "" {
				return failf(ExitUnavailable, "Error:\n%s", r.client.lacks)
			}
			return err
		},
	}
	if c.flags != nil {
		c.flags(cmd)
	}
	return cmd
}

// say prints an informational line, unless it was asked not to or a program reads the output.
func (r *run) say(format string, args ...any) {
	if !r.quiet && !r.silent && !machineReadable(r.formatter) {
		fmt.Fprintf(r.Out, format+"\n", args...)
	}
}

// result prints what a command did: a sentence, or for a program the values.
func (r *run) result(values map[string]any, format string, args ...any) error {
	if r.formatter == "json" {
		return writeJSON(r.Out, values)
	}
	if !r.quiet && !r.silent {
		fmt.Fprintf(r.Out, format+"\n", args...)
	}
	return nil
}

// call makes a request whose answer does not matter.
func (r *run) call(method, path string, in any) error {
	return r.client.do(r.ctx, method, path, in, nil)
}

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
