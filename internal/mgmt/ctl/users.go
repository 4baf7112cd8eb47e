package ctl

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func userCommands() []*command {
	var description, tags string
	return []*command{
		{
			use: "add_user username [password]", short: "Creates a user; without a password in the arguments it is read from standard input",
			least: 1, most: 2,
			run: func(r *run, args []string) error {
				password, err := r.password(args)
				if err != nil {
					return err
				}
				if args[0] == "" {
					return failf(ExitData, "Error: user cannot be an empty string")
				}
				r.say("Adding user %q ...", args[0])
				if err := r.call("POST", path("users"), map[string]any{"name": args[0], "password": password}); err != nil {
					return err
				}
				return r.result(map[string]any{"status": "ok"}, "Done. The user has no permissions yet: see set_permissions.")
			},
		},
		{
			use: "change_password username [password]", short: "Changes the password of a user", least: 1, most: 2,
			run: func(r *run, args []string) error {
				password, err := r.password(args)
				if err != nil {
					return err
				}
				r.say("Changing password for user %q ...", args[0])
				return exitCode(r.call("PUT", path("users", args[0], "password"), map[string]any{"password": password}), ExitNoUser)
			},
		},
		{
			use: "delete_user username", short: "Removes a user and closes its connections", least: 1, most: 1,
			run: func(r *run, args []string) error {
				r.say("Deleting user %q ...", args[0])
				return exitCode(r.call("DELETE", path("users", args[0]), nil), ExitNoUser)
			},
		},
		{
			use: "set_user_tags username [tag ...]", short: "Replaces the tags of a user", least: 1, most: -1,
			run: func(r *run, args []string) error {
				r.say("Setting tags for user %q to [%s] ...", args[0], strings.Join(args[1:], ", "))
				return exitCode(r.call("PUT", path("users", args[0], "tags"), map[string]any{"tags": args[1:]}), ExitNoUser)
			},
		},
		{
			use: "authenticate_user username [password]", short: "Tries a user's password; fails if it is wrong", least: 1, most: 2,
			run: func(r *run, args []string) error {
				password, err := r.password(args)
				if err != nil {
					return err
				}
				r.say("Authenticating user %q ...", args[0])
				err = r.call("POST", path("users", args[0], "authenticate"), map[string]any{"password": password})
				var no *refused
				if errors.As(err, &no) && no.refusal.Error == "refused" {
					return failf(ExitData, "Error: failed to authenticate user %q\n%s", args[0], no.Reason)
				}
				if err != nil {
					return err
				}
				return r.result(map[string]any{"status": "ok"}, "Success")
			},
		},
		{
			use: "set_permissions username configure write read", short: "Sets what a user may do in a virtual host", least: 4, most: 4,
			run: func(r *run, args []string) error {
				r.say("Setting permissions for user %q in vhost %q ...", args[0], r.vhost)
				return exitCode(r.call("PUT", path("vhosts", r.vhost, "permissions", args[0]),
					map[string]any{"configure": args[1], "write": args[2], "read": args[3]}), ExitUnavailable)
			},
		},
		{
			use: "clear_permissions username", short: "Takes away what a user may do in a virtual host", least: 1, most: 1,
			run: func(r *run, args []string) error {
				r.say("Clearing permissions for user %q in vhost %q ...", args[0], r.vhost)
				return exitCode(r.call("DELETE", path("vhosts", r.vhost, "permissions", args[0]), nil), ExitUnavailable)
			},
		},
		{
			use: "add_vhost vhost", short: "Creates a virtual host; one that exists stays as it is", least: 1, most: 1,
			flags: func(c *cobra.Command) {
				c.Flags().StringVar(&description, "description", "", "what the virtual host is for")
				c.Flags().StringVar(&tags, "tags", "", "tags, separated by commas")
			},
			run: func(r *run, args []string) error {
				r.say("Adding vhost %q ...", args[0])
				list := strings.FieldsFunc(tags, func(c rune) bool { return c == ',' || c == ' ' })
				err := r.call("POST", path("vhosts"), map[string]any{"name": args[0], "description": description, "tags": list})
				var no *refused
				if errors.As(err, &no) && no.refusal.Error == "exists" {
					return nil
				}
				return err
			},
		},
		{
			use: "delete_vhost vhost", short: "Removes a virtual host with everything in it and closes its connections", least: 1, most: 1,
			run: func(r *run, args []string) error {
				r.say("Deleting vhost %q ...", args[0])
				return r.call("DELETE", path("vhosts", args[0]), nil)
			},
		},
	}
}

// password is the second argument, or the first line of standard input.
func (r *run) password(args []string) (string, error) {
	if len(args) > 1 {
		return args[1], nil
	}
	r.say("Password:")
	restore := hideTyping(r.In)
	line, err := bufio.NewReader(r.In).ReadString('\n')
	restore()
	line = strings.TrimRight(line, "\r\n")
	if line == "" || err != nil && err != io.EOF {
		return "", failf(ExitData, "Error: the password is neither an argument nor on standard input")
	}
	return line, nil
}
