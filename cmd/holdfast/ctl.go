package main

import (
	"github.com/spf13/cobra"

	"holdfast/internal/config"
	"holdfast/internal/mgmt/ctl"
)

func ctlCommand(s ctl.Streams) *cobra.Command { return ctl.Command(s, config.Default().DataDir) }
