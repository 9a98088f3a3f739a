package idgen

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"time"
)

// Length is the number of digits of an id.
const Length = 23

// The leading digit tells how an id was made.
const (
	Generated = '1'
	Derived   = '2'
)

// Shards is the largest number of databases that ids can address; a
// deployment uses a divisor of it.
const Shards = 64

// UID is a follower as a number: the first 63 bits of
// SHA-256(appid, 0, openid). It is evenly spread and needs no table.
type UID uint64

// User computes a follower's UID.
func User(appID, openID string) UID {
	h := sha256.New()
	h.Write([]byte(appID))
	h.Write([]byte{0})
	h.Write([]byte(openID))
	return UID(binary.BigEndian.Uint64(h.Sum(nil)[:8]) >> 1)
}

// Digits gives the shard digits and the table digit of a follower's ids, for
// instance "577" for uid 9527.
func (u UID) Digits() string {
	shard := (uint64(u)/10)%Shards + 1
	return string([]byte{byte('0' + shard/10), byte('0' + shard%10), byte('0' + uint64(u)%10)})
}

// Hash is the full digest of an identity.
type Hash [sha256.Size]byte

// String is the lower-case hexadecimal form that letters and rows carry.
func (h Hash) String() string {
	var digits [2 * sha256.Size]byte
	hex.Encode(digits[:], h[:])
	return string(digits[:])
}

// HashOf digests the parts of an identity. Each part is preceded by its
// length, so that ("ab","c") and ("a","bc") differ.
func HashOf(parts ...string) Hash {
	d := sha256.New()
	var n [4]byte
	for _, p := range parts {
		binary.BigEndian.PutUint32(n[:], uint32(len(p)))
		d.Write(n[:])
		d.Write([]byte(p))
	}
	var h Hash
	d.Sum(h[:0])
	return h
}

// Derive makes the id of an identity that belongs to a follower.
func Derive(u UID, h Hash) string { return derive(u.Digits(), h) }

// DeriveBeside makes an id in the same shard and table as another id: a
// reply lives where its callback lives.
func DeriveBeside(id string, h Hash) (string, error) {
	p, err := Parse(id)
	if err != nil {
		return "", err
	}
	return derive(p.Digits, h), nil
}

func derive(digits string, h Hash) string {
	var id [Length]byte
	id[0] = Derived
	copy(id[1:], digits)
	low := binary.BigEndian.Uint64(h[:8]) >> 1
	for i := Length - 1; i > len(digits); i-- {
		id[i] = byte('0' + low%10)
		low /= 10
	}
	return string(id[:])
}

// Parts is an id taken apart.
type Parts struct {
	Version byte
	Digits  string // shard and table digits, "577"
	Shard   int    // 1–64
	Table   int    // 0–9
	Low     uint64 // the 63 bits
}

// ErrBadID says that a text is no id.
var ErrBadID = errors.New("not a message id: 23 digits are expected, beginning with 1 or 2")

// Parse checks an id's form. The time inside a generated id is not checked
// here, since a reader has no say in the writer's clock; see Time.
func Parse(id string) (Parts, error) {
	if len(id) != Length {
		return Parts{}, ErrBadID
	}
	for i := 0; i < len(id); i++ {
		if id[i] < '0' || id[i] > '9' {
			return Parts{}, ErrBadID
		}
	}
	if id[0] != Generated && id[0] != Derived {
		return Parts{}, ErrBadID
	}
	shard := int(id[1]-'0')*10 + int(id[2]-'0')
	low, err := strconv.ParseUint(id[4:], 10, 64)
	if err != nil || shard < 1 || shard > Shards || low >= 1<<63 {
		return Parts{}, ErrBadID
	}
	return Parts{Version: id[0], Digits: id[1:4], Shard: shard, Table: int(id[3] - '0'), Low: low}, nil
}

// Time is when a generated id was made; ok is false for derived ids.
func (p Parts) Time() (t time.Time, ok bool) {
	if p.Version != Generated {
		return time.Time{}, false
	}
	return time.UnixMilli(epoch + int64(p.Low>>(workerBits+sequenceBits))), true
}
