package bytecodec

import "encoding/binary"

// AppendUint appends a uvarint to dst.
func AppendUint(dst []byte, v uint64) []byte {
	if v < 0x80 {
		return append(dst, byte(v))
	}
	return binary.AppendUvarint(dst, v)
}

// AppendUints appends uvarints to dst, one after another, without their number.
func AppendUints(dst []byte, list ...uint64) []byte {
	for _, v := range list {
		dst = AppendUint(dst, v)
	}
	return dst
}

// AppendFixed64 appends eight bytes to dst, the lowest first.
func AppendFixed64(dst []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(dst, v) }

// AppendBytes appends the length of b and then b to dst.
func AppendBytes[T ~string | ~[]byte](dst []byte, b T) []byte {
	return append(AppendUint(dst, uint64(len(b))), b...)
}

// AppendTexts appends the number of texts and then each with its length to dst.
func AppendTexts(dst []byte, list []string) []byte {
	dst = AppendUint(dst, uint64(len(list)))
	for _, s := range list {
		dst = AppendBytes(dst, s)
	}
	return dst
}

// AppendBool appends a byte, 1 or 0, to dst.
func AppendBool(dst []byte, on bool) []byte {
	if on {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// Flags packs up to eight booleans into a byte, the first in the lowest bit.
func Flags(list ...bool) byte {
	var v byte
	for i, on := range list {
		if on {
			v |= 1 << i
		}
	}
	return v
}
