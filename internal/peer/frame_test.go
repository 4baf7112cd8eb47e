package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// chunks gives its bytes in pieces of sizes drawn from a seed.
type chunks struct {
	data []byte
	rng  *rand.Rand
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1+c.rng.IntN(1+c.rng.IntN(64<<10)))], c.data)
	c.data = c.data[n:]
	return n, nil
}

type frame struct {
	payload []byte
	own     bool
}

// readAll reads frames to the end and checks the bound on memory on the way.
func readAll(t *testing.T, data []byte, seed uint64, most int) (got []frame, err error) {
	f := newFrames(&chunks{data, rand.New(rand.NewPCG(seed, 0))}, most)
	came := 0
	for {
		payload, own, ok, err := f.next()
		if err != nil {
			return got, err
		}
		if ok {
			got = append(got, frame{payload, own})
			continue
		}
		if err := f.fill(); err != nil {
			return got, err
		}
		came = max(came, f.have-f.at)
		if limit := max(maxBlock, 2*came); len(f.block) > limit {
			t.Fatalf("a block of %d bytes while %d are there", len(f.block), came)
		}
	}
}

func TestFramesComeWholeHoweverTheyAreCut(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var data []byte
		var want []frame
		for range 200 {
			size := rng.IntN(3000)
			switch rng.IntN(20) {
			case 0:
				size = rng.IntN(600 << 10)
			case 1:
				size = 0
			}
			payload := make([]byte, size)
			for i := range payload {
				payload[i] = byte(rng.Uint32())
			}
			if rng.IntN(5) == 0 {
				data = appendOwn(data, ownBeat, payload)
				want = append(want, frame{append([]byte{ownBeat}, payload...), true})
			} else {
				data = append(binary.LittleEndian.AppendUint32(data, uint32(size)), payload...)
				want = append(want, frame{payload, false})
			}
		}
		got, err := readAll(t, data, seed, 4<<20)
		if err != io.EOF || len(got) != len(want) {
			t.Fatalf("seed %d: %d frames of %d, %v", seed, len(got), len(want), err)
		}
		// Compared only now: a piece handed out must not change later.
		for i := range want {
			if !bytes.Equal(got[i].payload, want[i].payload) || got[i].own != want[i].own {
				t.Fatalf("seed %d: frame %d differs", seed, i)
			}
			if cap(got[i].payload) != len(got[i].payload) {
				t.Fatalf("seed %d: frame %d lets its owner append into its neighbour", seed, i)
			}
		}
	}
}

func TestFrameLongerThanAllowedEndsTheStream(t *testing.T) {
	data := binary.LittleEndian.AppendUint32(nil, 101)
	if _, err := readAll(t, data, 0, 100); !errors.Is(err, ErrGarbage) {
		t.Fatalf("error %v", err)
	}
}

func TestBlocksShrinkWhenLittleComes(t *testing.T) {
	f := newFrames(&chunks{make([]byte, 8<<20), rand.New(rand.NewPCG(1, 1))}, 4<<20)
	f.size = maxBlock
	f.r = iotestOneByte{f.r}
	for range 64 * 8 {
		if err := f.fill(); err != nil {
			t.Fatal(err)
		}
		for {
			if _, _, ok, _ := f.next(); !ok {
				break
			}
		}
	}
	if f.size != minBlock {
		t.Fatalf("the next block has %d bytes", f.size)
	}
}

type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) { return o.r.Read(p[:1]) }

func FuzzFrames(f *testing.F) {
	f.Add(appendOwn(nil, ownBeat, []byte("well")), uint64(1))
	f.Add([]byte{3, 0, 0, 0, 'a', 'b', 'c', 255, 255, 255, 255}, uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		got, err := readAll(t, data, seed, 1<<20)
		if err == nil {
			t.Fatal("no end")
		}
		total := 0
		for _, g := range got {
			total += frameHead + len(g.payload)
		}
		if total > len(data) {
			t.Fatalf("%d bytes came of %d", total, len(data))
		}
	})
}
