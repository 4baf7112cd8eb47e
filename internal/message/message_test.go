package message

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"holdfast/internal/invariant"
	"holdfast/internal/wire"
)

var (
	rng   = rand.New(rand.NewPCG(1, 1))
	noise = func() []byte {
		b := make([]byte, 2<<20)
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
		}
		return b
	}()
)

type published struct {
	exchange, key string
	properties    []byte
	body          []byte
	persistent    bool
}

// build publishes in pieces of at most piece bytes.
func build(b *Builder, p published, piece int) Message {
	b.Begin(p.exchange, p.key, p.properties, uint64(len(p.body)), p.persistent)
	for body := p.body; len(body) > 0; {
		n := min(piece, len(body))
		b.Write(body[:n])
		body = body[n:]
		if b.Remaining() != uint64(len(body)) {
			panic("wrong number of bytes remaining")
		}
	}
	return b.Message()
}

// same fails unless m is what was published.
func same(t *testing.T, m Message, p published) {
	t.Helper()
	v, err := Parse(m.Head)
	if err != nil {
		t.Fatalf("a message of %d bytes does not parse: %v", len(p.body), err)
	}
	body := append(bytes.Clone(v.Body), bytes.Join(m.Chunks, nil)...)
	if string(v.Exchange) != p.exchange || string(v.RoutingKey) != p.key || !bytes.Equal(v.Properties, p.properties) ||
		!bytes.Equal(body, p.body) || v.Persistent != p.persistent || m.Persistent() != p.persistent {
		t.Fatalf("a message of %d bytes came out otherwise", len(p.body))
	}
	if v.BodySize != uint64(len(p.body)) || v.Chunks != len(m.Chunks) {
		t.Fatalf("a body of %d bytes: size %d in %d chunks, there are %d", len(p.body), v.BodySize, v.Chunks, len(m.Chunks))
	}
	want := len(m.Head)
	for i, c := range m.Chunks {
		want += len(c)
		if len(c) != ChunkSize && i < len(m.Chunks)-1 || len(c) == 0 || len(c) > ChunkSize {
			t.Fatalf("chunk %d of a body of %d bytes has %d", i, len(p.body), len(c))
		}
	}
	if m.Size() != want {
		t.Fatalf("size %d, want %d", m.Size(), want)
	}
}

// What was published comes out byte for byte, whatever its size and however it came. // R30
func TestBuild(t *testing.T) {
	properties := []byte(wire.NewProperties(wire.PropertySet{ContentType: "text/plain", MessageID: "1"}))
	sizes := []int{0, 1, 100, ownSize - 100, ownSize, ownSize + 1, blockSize, 100_000, ChunkSize - 1, ChunkSize,
		ChunkSize + 1, 2 * ChunkSize, 2*ChunkSize + 1, 1<<20 + 12345}
	pieces := []int{1, 7, 4088, 131064, ChunkSize, math.MaxInt}
	var b Builder
	var kept []Message
	var wants []published
	for i, size := range sizes {
		for _, piece := range pieces {
			if piece < 4000 && size > 10_000 {
				continue
			}
			p := published{"amq.topic", strings.Repeat("k", i), properties, noise[i : i+size], i%2 == 0}
			m := build(&b, p, piece)
			same(t, m, p)
			kept, wants = append(kept, m), append(wants, p)
		}
	}
	p := published{strings.Repeat("e", 255), strings.Repeat("k", 255), noise[:70_000], nil, true}
	same(t, build(&b, p, 1), p)
	// A message does not change when others are built after it.
	for i := range kept {
		same(t, kept[i], wants[i])
	}
}

func TestMessagesDoNotShareMemory(t *testing.T) {
	var b Builder
	first := build(&b, published{body: []byte("first")}, 5)
	second := build(&b, published{body: []byte("second")}, 5)
	_ = append(first.Head, "over the end"...)
	same(t, second, published{body: []byte("second")})
}

// A message given up leaves nothing to the next one.
func TestBeginAgain(t *testing.T) {
	var b Builder
	for _, size := range []uint64{100, 10_000, 3 * ChunkSize} {
		b.Begin("old", "old", []byte{1, 2, 3}, size, true)
		b.Write(noise[:size/2])
		p := published{exchange: "new", body: []byte("new")}
		same(t, build(&b, p, 3), p)
	}
}

func TestBuilderRefusesMisuse(t *testing.T) {
	for name, f := range map[string]func(b *Builder){
		"write before begin": func(b *Builder) { b.Write([]byte{1}) },
		"too much body":      func(b *Builder) { b.Begin("", "", nil, 3, false); b.Write([]byte("four")) },
		"too little body":    func(b *Builder) { b.Begin("", "", nil, 3, false); b.Write([]byte("tw")); b.Message() },
		"message twice":      func(b *Builder) { b.Begin("", "", nil, 0, false); b.Message(); b.Message() },
		"long key":           func(b *Builder) { b.Begin("", strings.Repeat("k", 256), nil, 0, false) },
	} {
		func() {
			defer func() {
				if _, ok := recover().(invariant.Violation); !ok {
					t.Errorf("%s: no violation", name)
				}
			}()
			f(new(Builder))
		}()
	}
}

func TestParseRefuses(t *testing.T) {
	var b Builder
	small := build(&b, published{"x", "k", []byte{0, 0}, []byte("body"), true}, 9).Head
	big := build(&b, published{"x", "k", []byte{0, 0}, noise[:ChunkSize+1], true}, 1<<20).Head
	for n := range len(small) - len("body") {
		if _, err := Parse(small[:n]); err == nil {
			t.Errorf("%d bytes of a head parse", n)
		}
	}
	for n := range big {
		if _, err := Parse(big[:n]); err == nil {
			t.Errorf("%d bytes of a chunked head parse", n)
		}
	}
	change := func(head []byte, at int, to byte) []byte {
		head = bytes.Clone(head)
		head[(at+len(head))%len(head)] = to
		return head
	}
	for name, head := range map[string][]byte{
		"unknown flag":       change(small, 0, 1<<5|1),
		"no hidden keys":     change(small, 0, flagHidden),
		"chunks not of size": change(big, -1, 3),
		"chunked but small":  change(big, -7, 0),
		"bytes behind":       append(bytes.Clone(big), 0),
		"large inline body":  append(bytes.Clone(small), noise[:ChunkSize]...),
	} {
		if _, err := Parse(head); err == nil {
			t.Errorf("%s: parses", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	var b Builder
	f.Add(build(&b, published{"x", "k", []byte{0, 0}, []byte("body"), true}, 9).Head)
	f.Add(build(&b, published{"x", "k", nil, noise[:ChunkSize+1], false}, 1<<20).Head)
	f.Add(b.Readdress(&Heading{Key: []byte("k"), Hidden: AppendHidden(AppendHidden(nil, "a"), ""), History: true, Rekeyed: true}, View{Body: []byte("b"), BodySize: 1}, nil).Head)
	f.Fuzz(func(t *testing.T, head []byte) {
		v, err := Parse(head)
		if err != nil {
			return
		}
		n := len(v.Exchange) + len(v.RoutingKey) + len(v.Properties) + len(v.Body) + minHead
		if v.Chunks > 0 {
			n += chunkTrailer
		}
		if v.Hidden != nil {
			n += 4 + len(v.Hidden)
		}
		if n != len(head) {
			t.Fatalf("%d of %d bytes were understood", n, len(head))
		}
		if m := new(Builder).Readdress(heading(v), v, nil); !bytes.Equal(m.Head, head) {
			t.Fatalf("built again it is %x, not %x", m.Head, head)
		}
	})
}

// heading is what a message has beside its body.
func heading(v View) *Heading {
	return &Heading{
		Exchange: v.Exchange, Key: v.RoutingKey, Properties: v.Properties, Hidden: v.Hidden,
		Persistent: v.Persistent, History: v.History, Rekeyed: v.Rekeyed,
	}
}

// A publisher that announces a large body and sends little of it holds little of the broker's memory.
func TestAnnouncedBodyIsNotBelieved(t *testing.T) {
	for _, announced := range []uint64{200_000, 1 << 30} {
		const builders = 64
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		bs := make([]Builder, builders)
		for i := range bs {
			bs[i].Begin("", "k", nil, announced, false)
			bs[i].Write(noise[:1000])
		}
		runtime.ReadMemStats(&after)
		if per := (after.TotalAlloc - before.TotalAlloc) / builders; per > blockSize+trust*1000+4096 {
			t.Errorf("%d bytes taken for 1000 of %d", per, announced)
		}
		runtime.KeepAlive(bs)
	}
}

// A small message costs less than an allocation.
func TestAllocations(t *testing.T) {
	var b Builder
	for _, tc := range []struct {
		size int
		most float64
	}{{100, 0.05}, {1000, 0.1}, {4000, 0.5}, {10_000, 1.1}, {200_000, 1.1}} {
		body := noise[:tc.size]
		got := testing.AllocsPerRun(1000, func() {
			for range 10 {
				b.Begin("amq.direct", "some.key", noise[:20], uint64(len(body)), true)
				b.Write(body)
				b.Message()
			}
		}) / 10
		if got > tc.most {
			t.Errorf("%v allocations for a body of %d bytes, at most %v wanted", got, tc.size, tc.most)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, size := range []int{16, 100, 1024, 10_240, 102_400} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var bd Builder
			body := noise[:size]
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for range b.N {
				bd.Begin("amq.direct", "some.key", noise[:20], uint64(size), true)
				bd.Write(body)
				bd.Message()
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	head := build(new(Builder), published{"amq.direct", "some.key", noise[:20], noise[:1024], true}, 4096).Head
	b.ReportAllocs()
	for range b.N {
		if _, err := Parse(head); err != nil {
			b.Fatal(err)
		}
	}
}
