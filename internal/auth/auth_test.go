package auth

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"testing"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/wire"

	"pgregory.net/rapid"
)

// The cases of rapid are the same in every run; -rapid.seed=N makes others.
func init() { flag.Set("rapid.seed", "1") }

// The hash RabbitMQ's documentation works out by hand: salt 908D C60A, password "test12".
const documented = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"

func TestHashFormat(t *testing.T) {
	if got := hashWithSalt([]byte{0x90, 0x8d, 0xc6, 0x0a}, "test12"); got != documented {
		t.Errorf("got %s", got)
	}
	a, b := HashPassword("secret"), HashPassword("secret")
	if a == b {
		t.Error("two hashes of one password have the same salt")
	}
	for _, hash := range []string{a, b} {
		if !CheckPassword(&catalog.User{Hash: hash, Algorithm: Algorithm}, "secret") {
			t.Error("a password does not fit its own hash")
		}
	}
}

func TestCheckPassword(t *testing.T) {
	for _, c := range []struct {
		hash, algorithm, password string
		want                      bool
	}{
		{documented, Algorithm, "test12", true},
		{documented, Algorithm, "test13", false},
		{documented, Algorithm, "", false},
		{documented, sha512Algorithm, "test12", false},
		{documented, "rot13", "test12", false},
		{"", Algorithm, "", false},
		{"", Algorithm, "x", false},
		{"no base64!", Algorithm, "x", false},
		{"kI3GCg==", Algorithm, "x", false}, // a salt and nothing else
		{"kI3GCg==", "rot13", "x", false},
		{"AQIDBGxb0KNJl2lwiTXCqEm6tzM=", md5Algorithm, "old", true},
		{"AQIDBGxb0KNJl2lwiTXCqEm6tzM=", "", "old", true},
		{"AQIDBGxb0KNJl2lwiTXCqEm6tzM=", "", "older", false},
		{"CQgHBoS3Qq+kR6oBm2ZzIRc27AixznqTGBZ6CjfpRdKQ16bv4jV3Ie09hQnkeFc8FWzuX1HL0BoCajSuR5hQ7woNtfU=", sha512Algorithm, "long", true},
	} {
		if got := CheckPassword(&catalog.User{Hash: c.hash, Algorithm: c.algorithm}, c.password); got != c.want {
			t.Errorf("%q %s %q: %v", c.hash, c.algorithm, c.password, got)
		}
	}
	if CheckPassword(nil, "x") || CheckPassword(nil, "") || CheckPassword(nobody, "x") {
		t.Error("nobody has a password")
	}
}

func TestLogin(t *testing.T) { // T11
	users := map[string]*catalog.User{
		"guest": {Name: "guest", Hash: HashPassword("guest"), Algorithm: Algorithm, Tags: []string{"administrator"}},
		"ann":   {Name: "ann", Hash: documented, Algorithm: Algorithm},
	}
	a := New(func(name string) *catalog.User { return users[name] }, func(name string) bool { return name == "guest" })
	local, remote := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	table := func(m map[string]any) string { return string(wire.NewTable(m)) }
	for _, c := range []struct {
		mechanism, response string
		peer                net.Addr
		code                uint16
		reason              string
	}{
		{"PLAIN", "\x00ann\x00test12", remote, 0, ""},
		{"PLAIN", "\x00ann\x00test1", remote, 403, "user 'ann': no such user, or wrong password"},
		{"PLAIN", "\x00ann\x00", remote, 403, "user 'ann': empty passwords are not accepted"},
		{"PLAIN", "\x00bob\x00test12", remote, 403, "user 'bob': no such user, or wrong password"},
		{"PLAIN", "", remote, 502, "PLAIN response is malformed: it does not start with a zero byte"},
		{"PLAIN", "ann test12", remote, 502, "PLAIN response is malformed: it does not start with a zero byte"},
		{"PLAIN", "ann\x00ann\x00test12", remote, 502, "PLAIN response is malformed: it does not start with a zero byte"},
		{"PLAIN", "\x00ann", remote, 502, "PLAIN response is malformed: no zero byte between user and password"},
		{"PLAIN", "\x00ann\x00test\x0012", remote, 502, "PLAIN response is malformed: a zero byte in the password"},
		{"FOO", "\x00ann\x00test12", remote, 503, `unknown authentication mechanism "FOO"`},
		{"plain", "\x00ann\x00test12", remote, 503, `unknown authentication mechanism "plain"`},
		{"PLAIN", "\x00guest\x00guest", local, 0, ""},
		{"PLAIN", "\x00guest\x00guest", &net.TCPAddr{IP: net.IPv6loopback}, 0, ""},
		{"PLAIN", "\x00guest\x00guest", &net.UnixAddr{Name: "ctl"}, 0, ""},
		{"PLAIN", "\x00guest\x00guess", remote, 403, "user 'guest': no such user, or wrong password"},
		{"PLAIN", "\x00guest\x00guest", remote, 403, `user 'guest' can only connect via localhost. To let clients in from other machines add a user: 'holdfast ctl add_user NAME PASSWORD', then 'holdfast ctl set_permissions NAME ".*" ".*" ".*"'. The setting loopback_users lists who is held to this rule`},
		{"PLAIN", "\x00guest\x00guest", nil, 403, `user 'guest' can only connect via localhost. To let clients in from other machines add a user: 'holdfast ctl add_user NAME PASSWORD', then 'holdfast ctl set_permissions NAME ".*" ".*" ".*"'. The setting loopback_users lists who is held to this rule`},
		{"AMQPLAIN", table(map[string]any{"LOGIN": "ann", "PASSWORD": "test12"}), remote, 0, ""},
		{"AMQPLAIN", table(map[string]any{"LOGIN": []byte("ann"), "PASSWORD": "test12", "more": 1}), remote, 0, ""},
		{"AMQPLAIN", table(map[string]any{"LOGIN": "ann", "PASSWORD": "x"}), remote, 403, "user 'ann': no such user, or wrong password"},
		{"AMQPLAIN", table(map[string]any{"LOGIN": "ann"}), remote, 502, "AMQPLAIN response is malformed: the LOGIN or PASSWORD field is missing"},
		{"AMQPLAIN", table(map[string]any{"LOGIN": "ann", "PASSWORD": 12}), remote, 502, "AMQPLAIN response is malformed: the LOGIN or PASSWORD field is no string"},
		{"AMQPLAIN", "\x00ann\x00test12", remote, 502, "AMQPLAIN response is malformed: it is no table: unknown type 0x61 of a table value"},
	} {
		id, err := a.Login(c.mechanism, []byte(c.response), c.peer)
		if c.code == 0 {
			if err != nil || id == nil {
				t.Errorf("%s %q: %v", c.mechanism, c.response, err)
			}
			continue
		}
		var told *amqperr.Error
		if id != nil || !errors.As(err, &told) {
			t.Errorf("%s %q from %v: logged in as %v, error %v", c.mechanism, c.response, c.peer, id, err)
			continue
		}
		if told.Code != c.code || told.Scope != amqperr.Connection || err.Error() != c.reason {
			t.Errorf("%s %q: %d (%s), reason %q, want %d, %q", c.mechanism, c.response, told.Code, told.Scope, err, c.code, c.reason)
		}
	}
	id, _ := a.Login("PLAIN", []byte("\x00guest\x00guest"), local)
	if !id.HasTag("administrator") || id.HasTag("impersonator") || !id.MaySignAs("guest") || id.MaySignAs("ann") {
		t.Error("tags")
	}
	if !(&Identity{Name: "x", Tags: []string{"impersonator"}}).MaySignAs("ann") {
		t.Error("an impersonator signs as anybody")
	}
}

// No response, however odd, logs anybody in or panics.
func TestLoginArbitrary(t *testing.T) {
	a := New(func(name string) *catalog.User {
		return &catalog.User{Name: name, Hash: documented, Algorithm: Algorithm}
	}, func(string) bool { return false })
	rapid.Check(t, func(t *rapid.T) {
		mechanism := rapid.SampledFrom([]string{"PLAIN", "AMQPLAIN", ""}).Draw(t, "mechanism")
		response := rapid.SliceOf(rapid.SampledFrom([]byte("\x00\x05\x08aLOGINPASWRDS\xff"))).Draw(t, "response")
		if _, err := a.Login(mechanism, response, nil); err == nil {
			t.Fatalf("%q logged in", response)
		}
	})
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		expr, name string
		want       bool
	}{
		{"", "", true}, {"", "q", false},
		{".*", "", true}, {".*", "q", true}, {".*", "a\nb", true}, {"^.*$", "q", true},
		{"^a", "ab", true}, {"^a", "ba", false}, {"a", "bab", true},
		{"^(amq\\.|mine-).*$", "mine-1", true}, {"^(amq\\.|mine-).*$", "amqx", false},
		{"^$", "", true}, {"^$", "x", false},
		{"(", "(", false}, {"(?=a)", "a", false},
	} {
		for range 2 { // compiled, then remembered
			if got := CompilePattern(c.expr).Match(c.name); got != c.want {
				t.Errorf("%q %q: %v", c.expr, c.name, got)
			}
		}
	}
	if CheckPattern("(") == nil || CheckPattern("(?=a)") == nil || CheckPattern("") != nil {
		t.Error("CheckPattern")
	}
	for i := range 2 * maxPatterns {
		CompilePattern(fmt.Sprintf("^x%d", i))
	}
	if n := len(patterns.m); n > maxPatterns {
		t.Errorf("%d patterns kept", n)
	}
}

func BenchmarkLogin(b *testing.B) {
	u := &catalog.User{Name: "ann", Hash: documented, Algorithm: Algorithm}
	a := New(func(string) *catalog.User { return u }, func(string) bool { return false })
	response := []byte("\x00ann\x00test12")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Login("PLAIN", response, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPattern(b *testing.B) {
	p := CompilePattern("^(amq\\.|mine-).*$")
	b.ReportAllocs()
	for b.Loop() {
		p.Match("mine-12345")
	}
}
