package ctl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// listing is a list_... command: what the node is asked, and which columns the rows have.
type listing struct {
	name     string
	short    string
	banner   string // $ is the vhost or the argument
	segments func(r *run, args []string) []string
	argument string   // name of the argument before the columns, where there is one
	columns  []string // all that may be asked for
	standard []string // what is shown when none is asked for
	fixed    bool     // takes no columns
	derive   func(row map[string]any)
	byType   bool // takes --type
	// known are columns that the node knows by itself: where only such are asked for, no other node is.
	known []string
}

// Columns that are known to rabbitmqctl and that the rows do not have stay empty: a script that asks for them goes on.
var listings = []listing{
	{
		name: "list_queues", short: "Lists queues and their properties",
		banner:   "Timeout: 60.0 seconds ...\nListing queues for vhost $ ...",
		segments: func(r *run, _ []string) []string { return []string{"queues", r.vhost} },
		columns: words(`name durable auto_delete arguments policy operator_policy effective_policy_definition pid owner_pid
			exclusive exclusive_consumer_pid exclusive_consumer_tag messages_ready messages_unacknowledged messages
			messages_ready_ram messages_unacknowledged_ram messages_ram messages_persistent message_bytes
			message_bytes_ready message_bytes_unacknowledged message_bytes_ram message_bytes_persistent
			head_message_timestamp disk_reads disk_writes consumers single_active_consumer_tag consumer_utilisation consumer_capacity memory state
			type leader members online id vhost reason publishes_refused publishes_unknown stale
			paused messages_dlx message_bytes_dlx dead_letters dead_letter_rates messages_delayed`),
		standard: words("name messages"),
		byType:   true,
		known: words(`name durable auto_delete arguments policy operator_policy effective_policy_definition owner_pid exclusive
			type members online id vhost publishes_refused publishes_unknown paused`),
		derive: func(row map[string]any) {
			row["owner_pid"] = row["owner_connection"]
			if counters, has := row["counters"].(map[string]any); has {
				row["publishes_refused"], row["publishes_unknown"] = counters["publishes_refused"], counters["publishes_unknown"]
				row["dead_letters"], row["dead_letter_rates"] = counters["dead_letters"], counters["dead_letter_rates"]
			}
		},
	},
	{
		name: "list_exchanges", short: "Lists exchanges", banner: "Listing exchanges for vhost $ ...",
		segments: func(r *run, _ []string) []string { return []string{"exchanges", r.vhost} },
		columns:  words("name type durable auto_delete internal arguments policy vhost messages_delayed"),
		standard: words("name type"),
	},
	{
		name: "list_bindings", short: "Lists all bindings on a vhost", banner: "Listing bindings for vhost $...",
		segments: func(r *run, _ []string) []string { return []string{"bindings", r.vhost} },
		columns:  words("source_name source_kind destination_name destination_kind routing_key arguments vhost"),
		standard: words("source_name source_kind destination_name destination_kind routing_key arguments"),
		derive:   func(row map[string]any) { row["source_kind"] = "exchange" },
	},
	{
		name: "list_connections", short: "Lists AMQP connections", banner: "Listing connections ...",
		segments: func(*run, []string) []string { return []string{"connections"} },
		columns: words(`pid name port host peer_port peer_host ssl ssl_protocol ssl_key_exchange ssl_cipher ssl_hash
			peer_cert_subject peer_cert_issuer peer_cert_serial_number peer_cert_validity state channels protocol
			auth_mechanism user vhost container_id timeout frame_max channel_max client_properties recv_oct recv_cnt
			send_oct send_cnt send_pend connected_at id`),
		standard: words("user peer_host peer_port state"),
		derive:   func(row map[string]any) { row["pid"] = row["name"] },
	},
	{
		name: "list_channels", short: "Lists all channels in the node", banner: "Listing channels ...",
		segments: func(*run, []string) []string { return []string{"channels"} },
		columns: words(`pid connection name number user vhost transactional confirm consumer_count messages_unacknowledged
			messages_uncommitted acks_uncommitted messages_unconfirmed prefetch_count global_prefetch_count`),
		standard: words("pid user consumer_count messages_unacknowledged"),
		derive: func(row map[string]any) {
			row["pid"] = channelName(row["connection"], row["number"])
			row["name"] = row["pid"]
		},
	},
	{
		name: "list_consumers", short: "Lists all consumers for a vhost", banner: "Listing consumers in vhost $ ...",
		segments: func(r *run, _ []string) []string { return []string{"consumers", r.vhost} },
		columns: words(`queue_name channel_pid consumer_tag ack_required prefetch_count active activity_status arguments
			exclusive messages_unacknowledged vhost`),
		standard: words("queue_name channel_pid consumer_tag ack_required prefetch_count active arguments"),
		derive: func(row map[string]any) {
			row["channel_pid"] = channelName(row["connection"], row["channel"])
			if row["activity_status"] != nil {
				return // a node of an older version does not say
			}
			row["activity_status"] = "up"
			if row["active"] == false {
				row["activity_status"] = "waiting"
			}
		},
	},
	{
		name: "list_users", short: "Lists user names and tags", banner: "Listing users ...", fixed: true,
		segments: func(*run, []string) []string { return []string{"users"} },
		standard: words("user tags"),
		derive:   func(row map[string]any) { row["user"] = row["name"] },
	},
	{
		name: "list_vhosts", short: "Lists virtual hosts", banner: "Listing vhosts ...",
		segments: func(*run, []string) []string { return []string{"vhosts"} },
		columns:  words("name description tags default_queue_type protected_from_deletion tracing cluster_state metadata"),
		standard: words("name"),
		derive:   func(row map[string]any) { row["tracing"] = false },
	},
	{
		name: "list_permissions", short: "Lists user permissions in a virtual host", fixed: true,
		banner:   "Listing permissions for vhost \"$\" ...",
		segments: func(r *run, _ []string) []string { return []string{"vhosts", r.vhost, "permissions"} },
		standard: words("user configure write read"),
	},
	{
		name: "list_policies", short: "Lists the policies of a virtual host", banner: "Listing policies for vhost \"$\" ...", fixed: true,
		segments: func(r *run, _ []string) []string { return []string{"policies", r.vhost} },
		standard: words("vhost name pattern apply-to definition priority"),
		derive:   definition,
	},
	{
		name: "list_operator_policies", short: "Lists the operator policies of a virtual host", banner: "Listing operator policy overrides for vhost \"$\" ...", fixed: true,
		segments: func(r *run, _ []string) []string { return []string{"operator-policies", r.vhost} },
		standard: words("vhost name pattern apply-to definition priority"),
		derive:   definition,
	},
	{
		name: "list_user_permissions", short: "Lists permissions of a user across all virtual hosts", fixed: true,
		argument: "username", banner: "Listing permissions for user \"$\" ...",
		segments: func(_ *run, args []string) []string { return []string{"users", args[0], "permissions"} },
		standard: words("vhost configure write read"),
	},
}

func words(text string) []string { return strings.Fields(text) }

// channelName is what RabbitMQ calls a channel, and what stands for it where rabbitmqctl would show a process.
func channelName(connection, number any) string { return fmt.Sprintf("%v (%v)", connection, number) }

func listCommands() []*command {
	var commands []*command
	for i := range listings {
		l := &listings[i]
		var kind string
		c := &command{use: l.name, short: l.short, most: -1, run: func(r *run, args []string) error { return l.run(r, args, kind) }}
		if l.byType {
			c.flags = func(f *cobra.Command) {
				f.Flags().StringVar(&kind, "type", "", "only those of this type, classic or quorum")
			}
		}
		if l.argument != "" {
			c.use, c.least = c.use+" "+l.argument, 1
		}
		if l.fixed {
			c.most = c.least
		} else {
			c.use += " [column ...]"
			c.long = l.short + ".\n\nColumns: " + strings.Join(l.columns, ", ")
		}
		commands = append(commands, c)
	}
	return commands
}

// run prints the listing; of one type, if that is not "".
func (l *listing) run(r *run, args []string, kind string) error {
	subject, columns := r.vhost, args
	if l.argument != "" {
		subject, columns = args[0], args[1:]
	}
	columns, err := l.choose(columns)
	if err != nil {
		return err
	}
	r.say("%s", strings.ReplaceAll(l.banner, "$", subject))
	var rows []map[string]any
	from := path(l.segments(r, args)...)
	if len(l.known) > 0 && !slices.ContainsFunc(columns, func(c string) bool { return !slices.Contains(l.known, c) }) {
		from += "?disable_stats=true"
	}
	if err := r.client.do(r.ctx, "GET", from, nil, &rows); err != nil {
		return err
	}
	table := table{columns: columns}
	for _, row := range rows {
		if kind != "" && row["type"] != kind {
			continue
		}
		if l.derive != nil {
			l.derive(row)
		}
		cells := make([]any, len(columns))
		for i, column := range columns {
			cells[i] = row[column]
		}
		table.rows = append(table.rows, cells)
	}
	return r.print(table)
}

// choose gives the columns to show. Several may stand in one argument, with commas.
func (l *listing) choose(args []string) ([]string, error) {
	var asked, unknown []string
	for _, arg := range args {
		for _, column := range strings.FieldsFunc(arg, func(c rune) bool { return c == ',' || c == ' ' }) {
			asked = append(asked, column)
			if !slices.Contains(l.columns, column) {
				unknown = append(unknown, column)
			}
		}
	}
	if len(unknown) > 0 {
		return nil, usagef("Info key(s) %s are not supported", strings.Join(unknown, ","))
	}
	if len(asked) == 0 {
		return l.standard, nil
	}
	return asked, nil
}
