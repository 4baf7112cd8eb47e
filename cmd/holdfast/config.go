package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/internal/config"
	"holdfast/internal/mgmt/ctl"
)

// flags are the settings that may stand on the command line; they win over the configuration file.
type flags struct {
	file, data, http string
	name, cluster    string
	secretFile       string
	clusterListen    string
	listen, join     []string
}

func (f *flags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "config", "", "configuration file")
	cmd.Flags().StringVar(&f.data, "data", "", "data folder (data_dir)")
	cmd.Flags().StringSliceVar(&f.listen, "listen", nil, "addresses for clients, port or address:port (listeners.tcp)")
	cmd.Flags().StringVar(&f.http, "http", "", `address for health and metrics, port or address:port, or "none" (management.tcp)`)
	cmd.Flags().StringVar(&f.name, "name", "", "what people call the node (node_name)")
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "host:port where other nodes reach this one (cluster.address)")
	cmd.Flags().StringVar(&f.clusterListen, "cluster-listen", "", "where it listens for them if not there, port or address:port (cluster.listen)")
	cmd.Flags().StringSliceVar(&f.join, "join", nil, "host:port of the nodes that form a cluster together (cluster.join)")
	cmd.Flags().StringVar(&f.secretFile, "cluster-secret-file", "", "file with what nodes have to know to be let in (cluster.secret)")
}

// settings reads the file and puts the flags on top. The warnings are about the file.
func (f *flags) settings() (*config.Settings, config.Problems, error) {
	s, warnings := config.Default(), config.Problems(nil)
	if f.file != "" {
		var err error
		if s, warnings, err = config.Load(f.file); err != nil {
			return nil, warnings, unusable(err)
		}
	}
	if f.data != "" {
		s.DataDir = f.data
	}
	if len(f.listen) > 0 {
		s.TCPListeners = nil
		for _, text := range f.listen {
			address, err := config.ParseListener(strings.TrimSpace(text))
			if err != nil {
				return nil, warnings, usage("--listen %v", err)
			}
			s.TCPListeners = append(s.TCPListeners, address)
		}
	}
	if err := f.setCluster(s); err != nil {
		return nil, warnings, err
	}
	if f.http != "" {
		if err := setHTTP(s, f.http); err != nil {
			return nil, warnings, err
		}
	}
	if err := s.Check(); err != nil {
		return nil, warnings, unusable(err)
	}
	return s, warnings, nil
}

// setCluster takes over what the flags say of other nodes.
func (f *flags) setCluster(s *config.Settings) error {
	if f.name != "" {
		s.NodeName = f.name
	}
	if f.cluster != "" {
		address, err := config.ParseNodeAddress(f.cluster)
		if err != nil {
			return usage("--cluster %v", err)
		}
		s.Cluster.Address = address
	}
	if f.clusterListen != "" {
		address, err := config.ParseListener(f.clusterListen)
		if err != nil {
			return usage("--cluster-listen %v", err)
		}
		s.Cluster.Listen = address
	}
	if len(f.join) > 0 {
		s.Cluster.Join = nil
		for _, text := range f.join {
			address, err := config.ParseNodeAddress(strings.TrimSpace(text))
			if err != nil {
				return usage("--join %v", err)
			}
			s.Cluster.Join = append(s.Cluster.Join, address)
		}
	}
	if f.secretFile != "" {
		secret, err := os.ReadFile(f.secretFile)
		if err != nil {
			return usage("--cluster-secret-file: %v", err)
		}
		if s.Cluster.Secret = strings.TrimSpace(string(secret)); s.Cluster.Secret == "" {
			return usage("--cluster-secret-file: %s is empty", f.secretFile)
		}
	}
	return nil
}

// unusable is the error for settings with which no node starts.
func unusable(problems error) error {
	return &ctl.Error{Code: ctl.ExitConfig, Text: "Error: the configuration cannot be used:\n" + problems.Error()}
}

// setHTTP makes one address the only place of health and metrics.
func setHTTP(s *config.Settings, text string) error {
	s.HTTPPort, s.MetricsPort = 0, 0
	if text == "none" {
		return nil
	}
	address, err := config.ParseListener(text)
	if err != nil {
		return usage("--http %v", err)
	}
	host, port, _ := net.SplitHostPort(address)
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if host != "" && net.ParseIP(host) == nil {
		return usage("--http: %q is not an IP address", host)
	}
	s.HTTPIP = host
	s.HTTPPort, _ = strconv.Atoi(port)
	return nil
}

func configCommand(s ctl.Streams) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file and print the settings that would be in force",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			settings, warnings, err := f.settings()
			for _, w := range warnings {
				fmt.Fprintln(s.Err, "warning:", w)
			}
			if err != nil {
				return err
			}
			return settings.Write(s.Out)
		},
	}
	f.add(cmd)
	return cmd
}
