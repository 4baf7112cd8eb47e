package config

import (
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the reference page instead of comparing it")

const referencePage = "../../docs/configuration.md"

// The page is made from the table, and a change of one without the other is an error.
func TestReferencePage(t *testing.T) {
	want := Reference()
	if *update {
		if err := os.WriteFile(referencePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Fatalf("%s is out of date: run go generate ./internal/config", referencePage)
	}
}

func TestEveryRowIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		if seen[r.key] {
			t.Errorf("%s is there twice", r.key)
		}
		seen[r.key] = true
		if r.about == "" || r.limits == "" || r.group == "" {
			t.Errorf("%s has no sentence, no limits or no group", r.key)
		}
		if r.family() != (r.reset != nil) {
			t.Errorf("%s: a family, and only a family, can be emptied", r.key)
		}
		if reason, ok := understood(r.key); ok && !strings.HasPrefix(r.key, "management.tcp.") &&
			!strings.HasPrefix(r.key, "prometheus.tcp.") && !strings.HasPrefix(r.key, "log.console") && !strings.HasPrefix(r.key, "ssl_options.") &&
			r.key != "cluster_formation.dns.hostname" {
			t.Errorf("%s is used and also listed as not used: %s", r.key, reason)
		}
		// Each default must be one that the setting would accept from a file.
		for _, p := range r.show(Default()) {
			if p.value == none && p.key == r.stem() {
				continue
			}
			s := Default()
			if r.family() {
				r.reset(s)
			}
			if err := s.Set(p.key, p.value); err != nil {
				t.Errorf("the default of %s is refused: %v", r.key, err)
			}
		}
	}
	for i := range known {
		if known[i].reason == "" {
			t.Errorf("%s has no reason", known[i].key)
		}
	}
}

// Every field of Settings must be reachable from some row, or it could not be set.
func TestEveryFieldHasARow(t *testing.T) {
	var shown []string
	for i := range rows {
		for _, p := range rows[i].show(fill(t)) {
			shown = append(shown, p.key+"="+p.value)
		}
	}
	var standard []string
	for i := range rows {
		for _, p := range rows[i].show(&Settings{}) {
			standard = append(standard, p.key+"="+p.value)
		}
	}
	changed := 0
	for i := range rows {
		if !reflect.DeepEqual(rows[i].show(fill(t)), rows[i].show(&Settings{})) {
			changed++
		}
	}
	if changed != len(rows) {
		t.Errorf("%d rows of %d show a field", changed, len(rows))
	}
	if fields := leaves(reflect.TypeFor[Settings]()); fields != len(rows) {
		t.Errorf("%d fields, %d rows: each field needs one\nfilled %v\nempty %v", fields, len(rows), shown, standard)
	}
}

// fill gives settings in which every field differs from its zero value.
func fill(t *testing.T) *Settings {
	s := &Settings{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i))
			}
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(7)
		case reflect.Uint16, reflect.Uint32, reflect.Uint64:
			v.SetUint(7)
		case reflect.Float64:
			v.SetFloat(7)
		case reflect.Slice:
			v.Set(reflect.ValueOf([]string{"x"}))
		default:
			t.Fatalf("a field of kind %v: teach this test", v.Kind())
		}
	}
	walk(reflect.ValueOf(s).Elem())
	return s
}

func leaves(t reflect.Type) int {
	if t.Kind() != reflect.Struct {
		return 1
	}
	n := 0
	for i := range t.NumField() {
		n += leaves(t.Field(i).Type)
	}
	return n
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name  string
		text  string
		check func(*Settings) any
		want  any
	}{
		{"nothing", "", func(s *Settings) any { return *s }, *Default()},
		{"comments and blanks", "\n# heartbeat = 1\n   ## x\n\t\n", func(s *Settings) any { return *s }, *Default()},
		{"seconds", "heartbeat = 30", func(s *Settings) any { return s.Heartbeat }, 30 * time.Second},
		{"milliseconds", "handshake_timeout = 5000", func(s *Settings) any { return s.HandshakeTimeout }, 5 * time.Second},
		{"a time with its unit", "publish_timeout = 1m30s", func(s *Settings) any { return s.PublishTimeout }, 90 * time.Second},
		{"heartbeat off", "heartbeat=0", func(s *Settings) any { return s.Heartbeat }, time.Duration(0)},
		{"windows line ends", "heartbeat = 7\r\nchannel_max = 9\r\n", func(s *Settings) any { return [2]any{s.Heartbeat, s.ChannelMax} }, [2]any{7 * time.Second, uint16(9)}},
		{"comment after a value", "channel_max = 100 # enough", func(s *Settings) any { return s.ChannelMax }, uint16(100)},
		{"quoted value", "default_pass = 'a#b = c' # secret", func(s *Settings) any { return s.DefaultPass }, "a#b = c"},
		{"value with equals sign", "default_pass = a=b", func(s *Settings) any { return s.DefaultPass }, "a=b"},
		{"empty value where allowed", "default_permissions.write =", func(s *Settings) any { return s.DefaultPermissions.Write }, ""},
		{"size with a decimal unit", "disk_free_limit.absolute = 2GB", func(s *Settings) any { return s.DiskFreeLimitAbsolute }, Bytes(2000 * 1000 * 1000)},
		{"size with a binary unit", "max_message_size = 4 MiB", func(s *Settings) any { return s.MaxMessageSize }, 4 * MiB},
		{"size in RabbitMQ's short form", "storage.tail_cache = 3M", func(s *Settings) any { return s.Storage.TailCache }, 3 * MiB},
		{"memory mark", "vm_memory_high_watermark.relative = 0.4", func(s *Settings) any { return s.MemoryLimit(1000) }, uint64(400)},                   // R262
		{"memory there is", "total_memory_available_override_value = 4GB", func(s *Settings) any { return s.MemoryTotal }, Bytes(4_000_000_000)},        // R490
		{"absolute memory mark", "vm_memory_high_watermark.absolute = 512MiB", func(s *Settings) any { return s.MemoryLimit(1000) }, uint64(512 * MiB)}, // R264
		{"frame_max of old clients", "frame_max = 4096", func(s *Settings) any { return s.FrameMax }, uint32(4096)},
		{"listeners replace the default", "listeners.tcp.local = 127.0.0.1:5680\nlisteners.tcp.v6 = ::1:5680\nlisteners.tcp.any = 5681",
			func(s *Settings) any { return s.TCPListeners }, []string{"127.0.0.1:5680", "[::1]:5680", ":5681"}},
		{"no guest restriction, as a list", "loopback_users = none", func(s *Settings) any { return len(s.LoopbackUsers) }, 0},
		{"no guest restriction, by name", "loopback_users.guest = false", func(s *Settings) any { return s.IsLoopbackUser("guest") }, false},
		{"another loopback user", "loopback_users.ops = true", func(s *Settings) any { return s.LoopbackUsers }, []string{"ops"}},
		{"a name with a dot", `loopback_users.a\.b = true`, func(s *Settings) any { return s.LoopbackUsers }, []string{"a.b"}},
		{"tags", "default_user_tags.monitoring = true\ndefault_user_tags.administrator = false", func(s *Settings) any { return s.DefaultUserTags }, []string{"monitoring"}},
		{"TLS", "listeners.ssl.1 = 5671\nssl_options.certfile = c.pem\nssl_options.keyfile = k.pem\nssl_options.versions.1 = tlsv1.3",
			func(s *Settings) any { return [2][]string{s.TLSListeners, s.TLS.Versions} }, [2][]string{{":5671"}, {"tlsv1.3"}}},
		{"http on loopback", "management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = 8080\nprometheus.tcp.port = 0",
			func(s *Settings) any { return s.HTTPListeners() }, []string{"127.0.0.1:8080"}},
		{"one place for both", "prometheus.tcp.port = 15672", func(s *Settings) any { return s.HTTPListeners() }, []string{":15672"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Default()
			warnings, err := Parse("f.conf", c.text, s)
			if err != nil || len(warnings) != 0 {
				t.Fatalf("error %v, warnings %v", err, warnings)
			}
			if have := c.check(s); !reflect.DeepEqual(have, c.want) {
				t.Fatalf("have %#v, want %#v", have, c.want)
			}
		})
	}
}

func TestParseTellsEverythingAtOnce(t *testing.T) {
	text := strings.Join([]string{
		"hearbeat = 10",               // 1: a slip
		"frame_max = 64",              // 2
		"this is no setting",          // 3
		"default_pass = 'open",        // 4
		"cluster_name = x",            // 5: a warning
		"listeners.tpc.1 = 5672",      // 6: a slip in a family
		"listeners.ssl.1 = 5671",      // 7: needs a certificate
		"= 3",                         // 8
		"zzz = 1",                     // 9: nothing near
		"heartbeat = soon",            // 10
		"disk_free_limit.absolute=-1", // 11
		"log.console.level = loud",    // 12
		"listeners.tcp = 5672",        // 13
		"default_permissions.read=(",  // 14
		"include conf.d/*.conf",       // 15
		"default_pass = 'x' y",        // 16
		"disk_free_limit = 2GB",       // 17
	}, "\n")
	s := Default()
	warnings, err := Parse("f.conf", text, s)
	want := []string{
		`f.conf:1: unknown key "hearbeat"; did you mean "heartbeat"?`,
		`f.conf:2: frame_max must be a whole number, 4096 to 1048576, not "64"`,
		`f.conf:3: must be key = value, not "this is no setting"`,
		`f.conf:4: default_pass: the quote is not closed`,
		`f.conf:6: unknown key "listeners.tpc.1"; did you mean "listeners.tcp.1"?`,
		`f.conf:7: listeners.ssl needs ssl_options.certfile and ssl_options.keyfile`,
		`f.conf:8: "" cannot be a key`,
		`f.conf:9: unknown key "zzz"`,
		`f.conf:10: heartbeat must be a time, such as 60 (in seconds) or 1m30s, not "soon"`,
		`f.conf:11: disk_free_limit.absolute must be a size, such as 1048576, 512MB or 2GiB, not "-1"`,
		`f.conf:12: log.console.level must be debug, info, warning, error, critical or none, not "loud"`,
		`f.conf:13: listeners.tcp must be none, or have a name: listeners.tcp.1 = ...`,
		"f.conf:14: default_permissions.read must be a regular expression: error parsing regexp: missing closing ): `(`",
		`f.conf:15: include is not supported: put all settings into one file`,
		`f.conf:16: default_pass: "y" stands after the closing quote`,
		`f.conf:17: unknown key "disk_free_limit"; there is disk_free_limit.absolute, disk_free_limit.relative`,
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("have\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	if len(warnings) != 1 || warnings[0].String() != "f.conf:5: cluster_name is not used: nodes find each other by cluster.address, cluster.join and cluster_formation.dns.hostname; the rest is not adjustable" {
		t.Errorf("warnings %v", warnings)
	}
}

// A password that was not quoted is cut at its #, and the file's owner hears of it.
func TestACutValueIsAWarning(t *testing.T) {
	for line, warned := range map[string]bool{
		"default_pass = a#b": true, "default_pass = a # b": false, "default_pass = a\t#b": false, "default_pass = 'a#b'": false, "default_pass = ab #c#d": false,
	} {
		warnings, err := Parse("f", line, Default())
		if err != nil || (len(warnings) == 1) != warned || warned && !strings.Contains(warnings[0].String(), "single quotes") {
			t.Errorf("%q: error %v, warnings %v", line, err, warnings)
		}
	}
}

func TestParseWarnsOfASecondValue(t *testing.T) {
	s := Default()
	warnings, err := Parse("f", "heartbeat = 1\nheartbeat = 2", s)
	if err != nil || len(warnings) != 1 || warnings[0].String() != "f:2: heartbeat replaces the value of line 1" || s.Heartbeat != 2*time.Second {
		t.Fatalf("error %v, warnings %v, heartbeat %v", err, warnings, s.Heartbeat)
	}
	if _, err := Parse("f", "listeners.tcp.1 = 1\nlisteners.tcp.1 = 2", Default()); err == nil {
		t.Fatal("the same listener name twice is an error")
	}
}

func TestConflicts(t *testing.T) {
	for name, text := range map[string]string{
		"no listener":         "listeners.tcp = none",
		"verify without ca":   "ssl_options.verify = verify_peer",
		"fail without verify": "ssl_options.fail_if_no_peer_cert = true",
		"no TLS version":      "ssl_options.versions = none",
		"two disk marks":      "disk_free_limit.absolute = 1GB\ndisk_free_limit.relative = 1",
		"segments":            "storage.segment_size.min = 512MiB",
		"commit":              "storage.commit_size.max = 16MiB",
	} {
		s := Default()
		_, err := Parse("f", text, s)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if strings.HasPrefix(err.Error(), "f: ") {
			t.Errorf("%s: the problem has no line: %v", name, err)
		}
		if s.Check() == nil {
			t.Errorf("%s: Check accepts it", name)
		}
	}
	if err := Default().Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// R412: the mark of the disk as it is set, or as is sane for the disk.
func TestDiskFreeLimit(t *testing.T) {
	const gib = uint64(GiB)
	for _, c := range []struct {
		name        string
		change      func(*Settings)
		disk, limit uint64
	}{
		{"large disk: 2 GiB", func(*Settings) {}, 1000 * gib, 2 * gib},
		{"small disk: 5 %", func(*Settings) {}, 20 * gib, gib},
		{"tiny disk: 256 MiB", func(*Settings) {}, gib, 256 << 20},
		{"absolute", func(s *Settings) { s.DiskFreeLimitAbsolute = 5 * MiB }, 1000 * gib, 5 << 20},
		{"relative to memory", func(s *Settings) { s.DiskFreeLimitRelative = 1.5 }, 1000 * gib, 12 * gib},
	} {
		s := Default()
		c.change(s)
		if have := s.DiskFreeLimit(c.disk, 8*gib); have != c.limit {
			t.Errorf("%s: %d, want %d", c.name, have, c.limit)
		}
	}
}

func TestWriteIsReadBack(t *testing.T) {
	s := Default()
	text := "heartbeat = 7\nlisteners.tcp.1 = ::1:5680\nloopback_users = none\ndefault_vhost = '#1'\nhandshake_timeout = 1500\n"
	if _, err := Parse("f", text, s); err != nil {
		t.Fatal(err)
	}
	again := Default()
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	warnings, err := Parse("again", b.String(), again)
	if err != nil || len(warnings) > 0 || !reflect.DeepEqual(s, again) {
		t.Fatalf("error %v, warnings %v\nwrote\n%s\nhave %+v\nwant %+v", err, warnings, b.String(), again, s)
	}
	if !strings.Contains(b.String(), "heartbeat = 7   # default: 60") {
		t.Errorf("a changed setting does not show its default:\n%s", b.String())
	}
}

func TestWriteMasksThePassword(t *testing.T) {
	s := Default()
	s.DefaultPass = "sesame"
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "sesame") || !strings.Contains(b.String(), "# default_pass is set and not shown") {
		t.Fatalf("the password:\n%s", b.String())
	}
}

func TestParseListener(t *testing.T) {
	for text, want := range map[string]string{
		"5672": ":5672", "127.0.0.1:5672": "127.0.0.1:5672", "[::1]:5672": "[::1]:5672", "::1:5672": "[::1]:5672",
		":5672": ":5672", "localhost:0": "localhost:0", ":::5672": "[::]:5672",
		"": "", "host": "", "host:": "", "1:65536": "", "a b:1": "",
	} {
		have, err := ParseListener(text)
		if have != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", text, have, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	for key, want := range map[string]string{
		"hartbeat":                  "heartbeat",
		"default_password":          "default_pass",
		"loopback_user.guest":       "loopback_users.guest",
		"disk_free_limit.absolut":   "disk_free_limit.absolute",
		"storage.segment_size_min":  "storage.segment_size.min",
		"cluster_nme":               "cluster_name",
		"something.quite.different": "",
	} {
		if have := nearest(key); have != want {
			t.Errorf("%q: %q, want %q", key, have, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("heartbeat = 60\nlisteners.tcp.1 = 5672\n")
	f.Add("default_pass = 'a#b'\nloopback_users.a\\.b = true\n# c")
	f.Add("disk_free_limit.absolute = 18446744073709551615GiB")
	f.Add("handshake_timeout = 1h\nssl_options.versions.1 = tlsv1.2\n=\n'")
	f.Fuzz(func(t *testing.T, text string) {
		s := Default()
		_, err := Parse("f", text, s)
		lines := strings.Count(text, "\n") + 1
		if ps, ok := err.(Problems); ok {
			for _, p := range ps {
				if p.Line < 0 || p.Line > lines || p.Text == "" {
					t.Fatalf("a problem without a place: %+v", p)
				}
			}
			return
		}
		if s.DefaultPass != Default().DefaultPass || strings.ContainsAny(text, "'\\") {
			return // masked, or a name or value that cannot be written back
		}
		var b strings.Builder
		if err := s.Write(&b); err != nil {
			t.Fatal(err)
		}
		again := Default()
		if _, err := Parse("again", b.String(), again); err != nil || !reflect.DeepEqual(s, again) {
			t.Fatalf("accepted settings are not read back: %v\n%s\nhave %+v\nwant %+v", err, b.String(), again, s)
		}
	})
}

// A file that all nodes share may leave the address to each one's command line; in the end there must be one.
func TestClusterNeedsAnAddress(t *testing.T) {
	for key, text := range map[string]string{"cluster.join.1": "a:25672", "cluster_formation.dns.hostname": "all.example"} {
		s := Default()
		if _, err := Parse("f.conf", key+" = "+text+"\n", s); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), "needs cluster.address") {
			t.Errorf("%s: %v", key, err)
		}
		if s.Cluster.Address = "b:25672"; s.Check() != nil {
			t.Errorf("%s: %v", key, s.Check())
		}
	}
}
