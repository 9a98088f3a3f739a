package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// A frame is one record in a segment:
//
//	magic [4]byte | payload length u32 | sequence u64 | CRC32C u32 over length, sequence and payload | payload
//
// all little endian. The magic lets a reader find the next frame behind a bad
// one. It is no valid UTF-8, so no text that a follower sends can contain it.
const frameHeader = 20

var (
	magic      = [4]byte{0xFF, 'T', 'g', 0xFE}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func appendFrame(b []byte, seq uint64, payload []byte) []byte {
	start := len(b)
	b = append(b, magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint32(b, frameSum(b[start+4:start+16], payload))
	return append(b, payload...)
}

func frameSum(lengthAndSeq, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(lengthAndSeq, castagnoli), castagnoli, payload)
}

// frame is one good record as read. Its payload is valid until the next call.
type frame struct {
	off, size int64
	seq       uint64
	payload   []byte
}

// gap is a range in which no good frame begins.
type gap struct {
	from, to int64
	// tail: nothing good follows in this segment.
	tail bool
	// whole: the first bytes claim a complete record, so this may be a record
	// that has rotted and not merely one that was never finished.
	whole bool
}

// scanner reads the frames of one segment in order. Sequence numbers must rise.
type scanner struct {
	r    io.ReaderAt
	pos  int64
	end  int64  // what lies beyond is not looked at
	last uint64 // sequence of the frame before

	buf  []byte // bytes of the segment from base on
	base int64
}

// readAhead is how much is read at once.
const readAhead = 256 << 10

// next gives the next frame, or the gap in front of it, or io.EOF at the end.
// Any other error is the disk's.
func (s *scanner) next() (frame, *gap, error) {
	if s.pos >= s.end {
		return frame{}, nil, io.EOF
	}
	f, claimed, err := s.at(s.pos)
	if err != nil {
		return frame{}, nil, err
	}
	if f != nil {
		s.pos, s.last = f.off+f.size, f.seq
		return *f, nil, nil
	}
	g := gap{from: s.pos, whole: claimed}
	g.to, err = s.find(s.pos + 1)
	if err != nil {
		return frame{}, nil, err
	}
	g.tail = g.to == s.end
	s.pos = g.to
	return frame{}, &g, nil
}

// maxJump bounds how far a sequence number may be ahead of the one before: a
// cheap look before the checksum of something that only resembles a frame.
const maxJump = 1 << 40

// at reads the frame at off; nil if there is no good one. claimed tells that
// it has a header and lies wholly inside the segment.
func (s *scanner) at(off int64) (f *frame, claimed bool, err error) {
	h, err := s.view(off, frameHeader)
	if err != nil || len(h) < frameHeader || !bytes.Equal(h[:4], magic[:]) {
		return nil, false, err
	}
	n := int64(binary.LittleEndian.Uint32(h[4:]))
	seq := binary.LittleEndian.Uint64(h[8:])
	size := frameHeader + n
	if n > maxPayload || off+size > s.end || seq <= s.last || seq-s.last > maxJump {
		return nil, false, nil
	}
	b, err := s.view(off, size)
	if err != nil || int64(len(b)) < size {
		return nil, false, err
	}
	if binary.LittleEndian.Uint32(b[16:]) != frameSum(b[4:16], b[frameHeader:]) {
		return nil, true, nil
	}
	return &frame{off: off, size: size, seq: seq, payload: b[frameHeader:]}, true, nil
}

// find gives the place of the next good frame from off on, or the end.
func (s *scanner) find(off int64) (int64, error) {
	for off < s.end {
		b, err := s.view(off, min(readAhead, s.end-off))
		if err != nil {
			return 0, err
		}
		i := bytes.Index(b, magic[:])
		if i < 0 {
			if len(b) < len(magic) {
				break
			}
			off += int64(len(b) - len(magic) + 1) // a magic may lie across the edge
			continue
		}
		off += int64(i)
		f, _, err := s.at(off)
		if err != nil {
			return 0, err
		}
		if f != nil {
			return off, nil
		}
		off++
	}
	return s.end, nil
}

// view gives n bytes at off, or fewer where the segment ends.
func (s *scanner) view(off, n int64) ([]byte, error) {
	n = min(n, s.end-off)
	if off < s.base || off+n > s.base+int64(len(s.buf)) {
		if err := s.fill(off, n); err != nil {
			return nil, err
		}
		n = min(n, int64(len(s.buf)))
	}
	i := off - s.base
	return s.buf[i : i+n], nil
}

func (s *scanner) fill(off, n int64) error {
	want := min(max(n, readAhead), s.end-off)
	if int64(cap(s.buf)) < want {
		s.buf = make([]byte, want)
	}
	s.buf, s.base = s.buf[:want], off
	got, err := s.r.ReadAt(s.buf, off)
	s.buf = s.buf[:got]
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if int64(got) < want { // the file is shorter than was said
		s.end = off + int64(got)
	}
	return nil
}
