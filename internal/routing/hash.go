package routing

import "math/bits"

// What hashing exchanges choose is the same on every node and for ever: the numbers here are not to be changed, or keys
// move, on one node before the other.

const (
	hashStart = 0x9e3779b97f4a7c15
	hashFold  = 0xa0761d6478bd642f
)

// hashOf is a number for a text, with nothing in common for texts that are alike. It guards against no one who seeks texts
// with the same number: who wants all messages in one queue may give them one key.
func hashOf[T string | []byte](text T) uint64 {
	h := hashStart ^ uint64(len(text))
	for ; len(text) >= 8; text = text[8:] {
		h = fold(h ^ (uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56))
	}
	var last uint64
	for i := len(text) - 1; i >= 0; i-- {
		last = last<<8 | uint64(text[i])
	}
	return mix(fold(h ^ last))
}

func fold(x uint64) uint64 {
	hi, lo := bits.Mul64(x, hashFold)
	return hi ^ lo ^ x
}

// mix spreads every bit of x over all bits.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// between turns a hash into a number between 0 and 1, either excluded.
func between(h uint64) float64 { return (float64(h>>12) + 0.5) / (1 << 52) }

// wait is how long something takes that happens once in a unit of time on the average, for x evenly distributed between 0
// and 1: the negative logarithm of 1-x. It is never less than x.
//
// It is made of single operations whose results are the same on all processors; the conversions keep a compiler from
// joining two of them with another rounding. math.Log promises no such thing.
func wait(x float64) float64 {
	y, halvings := 1-x, 0.0
	for y < 0.5 {
		y += y
		halvings++
	}
	// The logarithm of y, which is at least a half, as a series in s, which is at most a third.
	s := (1 - y) / (1 + y)
	if halvings == 0 {
		s = x / (2 - x)
	}
	square, sum := s*s, 0.0
	for n := 33.0; n > 0; n -= 2 {
		sum = float64(sum*square) + 1/n
	}
	return float64(2*s*sum) + float64(halvings*0.6931471805599453)
}
