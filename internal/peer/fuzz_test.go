package peer

import (
	"bytes"
	"io"
	"reflect"
	"testing"
)

// oneWay reads what it is given and forgets what is written.
type oneWay struct{ io.Reader }

func (oneWay) Write(p []byte) (int, error) { return len(p), nil }

func sample() *greeting {
	return &greeting{
		Hello: Hello{
			Least: 1, Most: 2, Cluster: ClusterID{1, 2, 3}, Node: 7, Incarnation: 8, Instance: 9,
			Name: "name", Addr: "10.0.0.1:25672", Info: []byte("info"), Levels: Levels{1, 3, 2},
			Line: []byte("line"),
		},
		purpose: purpose(Bulk), secret: true, to: 6, nonce: [32]byte{5},
	}
}

func TestAHelloIsReadAsItWasWritten(t *testing.T) {
	want := sample()
	raw := appendGreeting(nil, want)
	got, read, err := readGreeting(bytes.NewReader(append(raw, "more"...)), 1, 1)
	if err != nil || !bytes.Equal(read, raw) || !reflect.DeepEqual(&got, want) {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	// What a later version appends is left unread.
	later := append(appendGreeting(nil, want), "something new"...)
	later[12] += byte(len("something new"))
	if got, read, err := readGreeting(bytes.NewReader(later), 1, 1); err != nil || !bytes.Equal(read, later) || got.Node != 7 {
		t.Fatalf("of a later version: %+v, %v", got, err)
	}
	for n := range raw {
		if _, _, err := readGreeting(bytes.NewReader(raw[:n]), 1, 1); err == nil {
			t.Fatalf("%d bytes are enough", n)
		}
	}
}

func FuzzGreeting(f *testing.F) {
	raw := appendGreeting(nil, sample())
	f.Add(raw)
	f.Add(append(raw, make([]byte, proofSize)...))
	f.Add([]byte(magic + "\x01\x00\x01\x00\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, read, err := readGreeting(bytes.NewReader(data), 1, 1)
		if err == nil {
			if len(read) > helloHead+maxHello || len(g.Info) > maxInfo || len(g.Name) > maxName || len(g.Addr) > maxAddr {
				t.Fatalf("a hello of %d bytes: %+v", len(read), g)
			}
			again := appendGreeting(nil, &g)
			if g2, _, err := readGreeting(bytes.NewReader(again), 1, 1); err != nil || !reflect.DeepEqual(g, g2) {
				t.Fatalf("%+v is read again as %+v, %v", g, g2, err)
			}
		}
		for _, secret := range []string{"", "a long secret"} {
			mine := greeter{secret: []byte(secret), self: func() Hello { return Hello{Least: 1, Most: 1, Node: 1, Instance: 1} }}
			if _, err := mine.accept(oneWay{bytes.NewReader(data)}, func(*greeting) error { return nil }); err == nil && secret != "" {
				t.Fatal("accepted without the secret")
			}
			if _, err := mine.dial(oneWay{bytes.NewReader(data)}, purposeCall, 0); err == nil && secret != "" {
				t.Fatal("believed without the secret")
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	c := appendChallenge(nil, &challenge{least: 1, most: 1})
	f.Add(append(append(append(c, 0, 1), appendGreeting(nil, sample())...), make([]byte, proofSize)...))
	f.Add(append(c, 9, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, secret := range []string{"", "a long secret"} {
			mine := greeter{secret: []byte(secret), self: func() Hello { return Hello{Least: 1, Most: 1, Node: 1, Instance: 1} }}
			if h, err := mine.dial(oneWay{bytes.NewReader(data)}, purposeProbe, 7); err == nil && (secret != "" || h.Node != 7) {
				t.Fatalf("believed %+v", h)
			}
		}
	})
}
