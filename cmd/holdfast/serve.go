package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/mgmt/ctl"
	"holdfast/internal/node"
	"holdfast/internal/vfs"
)

func serveCommand(s ctl.Streams) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long:  "Runs a node until it gets SIGTERM or SIGINT, which stop it in an orderly way; a second one ends it at once.",
		Example: "  holdfast serve\n" +
			"  holdfast serve --data /var/lib/holdfast --listen 127.0.0.1:5672 --http none\n" +
			"  holdfast serve --config /etc/holdfast.conf",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, warnings, err := f.settings()
			if err != nil {
				return err
			}
			log := logger(settings.Log, s)
			for _, w := range warnings {
				log.Warn("configuration", "problem", w.String())
			}
			return serve(cmd.Context(), settings, f.file, log, s.Out)
		},
	}
	f.add(cmd)
	return cmd
}

// serve runs a node until a signal comes or the node cannot go on.
func serve(ctx context.Context, settings *config.Settings, file string, log *slog.Logger, out io.Writer) error {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	life, err := node.Begin(node.Options{
		Settings: settings, FS: vfs.OS(), Clock: clock.System(), Logger: log, Memory: node.DetectMemoryLimit(),
		Version: version(), ConfigFile: file, LenientHTTP: settings.HTTPIsDefault(), Context: ctx,
	}, func(n *node.Node) { greet(out, n) })
	if err != nil && ctx.Err() != nil {
		log.Info("stopped before the node was up", "reason", err)
		return nil
	}
	if err != nil {
		hint := ""
		switch {
		case errors.Is(err, node.ErrInUse):
			hint = "\nA folder serves one process: stop the other one, or name another folder with --data"
		case errors.Is(err, syscall.EADDRINUSE):
			hint = "\nAnother program has that address. --listen and --http name others; listeners.tcp, management.tcp and prometheus.tcp do so in a file"
		}
		return fmt.Errorf("Error: the node does not start: %w%s", err, hint)
	}
	notify(log, "READY=1")
	select {
	case <-ctx.Done():
		log.Info("stopping: a signal came")
	case <-life.Done():
	}
	notify(log, "STOPPING=1")
	cancel() // from here on a signal ends the process
	if err := errors.Join(life.End(), life.Err()); err != nil {
		return fmt.Errorf("Error: the node stopped: %w", err)
	}
	return nil
}

// greet says where the node is and how to send it a first message.
func greet(out io.Writer, n *node.Node) {
	r := n.Report()
	fmt.Fprintf(out, "Holdfast %s is ready.\n", version())
	line := func(name, text string) { fmt.Fprintf(out, "  %-9s%s\n", name, text) }
	for _, url := range r.URLs {
		line("clients", url)
	}
	for _, at := range n.Management().Addresses() {
		line("health", "http://"+visible(at.String())+"/healthz, and /metrics")
	}
	line("data", fmt.Sprintf("%s (%s on disk)", r.DataDir, mebibytes(r.DiskBytes)))
	line("try", asCalled(r.Try, os.Args[0]))
}

// asCalled is a command as it can be pasted where the program was called by a path and need not be in the search path.
func asCalled(command, program string) string {
	if strings.ContainsRune(program, '/') {
		return program + strings.TrimPrefix(command, "holdfast")
	}
	return command
}

// visible is an address as it can be typed: every interface includes this machine.
func visible(address string) string {
	if port, ok := strings.CutPrefix(address, "[::]:"); ok {
		return "localhost:" + port
	}
	if port, ok := strings.CutPrefix(address, "0.0.0.0:"); ok {
		return "localhost:" + port
	}
	return address
}

func mebibytes(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }

// levels are the words of the setting; critical lies above what slog names.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "error": slog.LevelError, "critical": slog.LevelError + 4,
}

// logger writes the log that the settings ask for.
func logger(l config.Log, s ctl.Streams) *slog.Logger {
	level, on := levels[l.Level]
	if !on || !l.Console {
		return slog.New(slog.DiscardHandler)
	}
	to := s.Err
	if l.Stream == "stdout" {
		to = s.Out
	}
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}
