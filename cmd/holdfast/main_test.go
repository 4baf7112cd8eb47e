package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holdfast/internal/mgmt/ctl"
)

// command runs one command line and gives what it printed.
func command(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = run(args, ctl.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return out.String(), errs.String(), code
}

func TestCommandLine(t *testing.T) {
	empty := t.TempDir()
	broken := filepath.Join(empty, "broken.conf")
	if err := os.WriteFile(broken, []byte("hearbeat = 1\nframe_max = x\ncluster_name = c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"version", 0, "holdfast " + release, ""},
		{"--version", 0, "holdfast " + release, ""},
		{"--help", 0, "serve", ""},
		{"", 0, "Available Commands", ""},
		{"nosuch", ctl.ExitUsage, "", `unknown command "nosuch"`},
		{"sevre", ctl.ExitUsage, "", `did you mean "serve"?`},
		{"serve extra", ctl.ExitUsage, "", "takes no arguments"},
		{"serve --nosuch", ctl.ExitUsage, "", "unknown flag"},
		{"serve --listen nowhere", ctl.ExitUsage, "", "--listen must be a port"},
		{"serve --http 1.2.3:5", ctl.ExitUsage, "", "not an IP address"},
		{"serve --config " + broken, ctl.ExitConfig, "", "broken.conf:1: unknown key"},
		{"config", 0, "heartbeat = 60\n", ""},
		{"config --listen 127.0.0.1:1,2 --data d", 0, "listeners.tcp.2 = 2", ""},
		{"config --config " + broken, ctl.ExitConfig, "", "broken.conf:2: frame_max"},
		{"config --config " + broken, ctl.ExitConfig, "", "warning: " + broken + ":3: cluster_name"},
		{"config --config nowhere.conf", ctl.ExitConfig, "", "nowhere.conf"},
		{"ctl --data " + empty + " ping", ctl.ExitUnavailable, "", "no node serves"},
		{"ctl nosuch", ctl.ExitUsage, "", `command "nosuch" not found; see holdfast ctl --help`},
		{"ctl list_queus", ctl.ExitUsage, "", `did you mean "list_queues"?`},
		{"ctl list_queues nosuch", ctl.ExitUsage, "", "not supported"},
		{"dump --data " + empty, 1, "", "there is no log"},
		{"perf --help", 0, "Scenarios:", ""},
		{"perf audit --help", 0, "--drop-consumers", ""},
		{"perf --nosuch", ctl.ExitUsage, "", "unknown option --nosuch"},
		{"perf nosuch", ctl.ExitUsage, "", "no scenario is called"},
		{"perf -h 127.0.0.1:1", 1, "", "refused"},
		{"dump --group 3", ctl.ExitUsage, "", "--salvage"},
	} {
		out, errs, code := command(strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.stdout) || !strings.Contains(errs, c.stderr) {
			t.Errorf("%s: code %d, want %d\nstdout %s\nstderr %s", c.args, code, c.code, out, errs)
		}
	}
}

func TestHTTPFlag(t *testing.T) {
	for text, want := range map[string][]string{
		"none":           nil,
		"8080":           {":8080"},
		"127.0.0.1:8080": {"127.0.0.1:8080"},
		"localhost:8080": {"127.0.0.1:8080"},
		"[::1]:8080":     {"[::1]:8080"},
		"":               {":15672", ":15692"},
	} {
		f := flags{http: text}
		s, _, err := f.settings()
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if have := s.HTTPListeners(); !reflect.DeepEqual(have, want) {
			t.Errorf("%q: %v, want %v", text, have, want)
		}
		if s.HTTPIsDefault() != (text == "") {
			t.Errorf("%q: asked for: %v", text, !s.HTTPIsDefault())
		}
	}
}

func TestFlagsWinOverTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h.conf")
	if err := os.WriteFile(file, []byte("data_dir = a\nlisteners.tcp.1 = 1\nheartbeat = 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := flags{file: file, data: "b", listen: []string{"2"}}
	s, _, err := f.settings()
	if err != nil {
		t.Fatal(err)
	}
	if s.DataDir != "b" || !reflect.DeepEqual(s.TCPListeners, []string{":2"}) || s.Heartbeat.Seconds() != 5 {
		t.Errorf("%+v", s)
	}
}

// Every command and flag is named on the first page or explains itself in the help.
func TestEveryCommandHasAHelpText(t *testing.T) {
	out, _, _ := command("ctl", "--help")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "completion ") {
			t.Errorf("a command nobody asked for: %s", line)
		}
	}
	for _, c := range strings.Fields("status list_queues list_exchanges list_bindings list_connections list_channels list_consumers list_users list_vhosts " +
		"list_permissions list_user_permissions add_user change_password delete_user set_user_tags set_permissions clear_permissions authenticate_user " +
		"add_vhost delete_vhost purge_queue delete_queue declare_queue close_connection close_all_connections publish get explain discard ping environment") {
		if !strings.Contains(out, c+" ") {
			t.Errorf("ctl --help does not name %s", c)
		}
	}
}

func streams() ctl.Streams {
	return ctl.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}
}
