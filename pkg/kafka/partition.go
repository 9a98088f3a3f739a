package kafka

import "encoding/binary"

// Partition tells in which of a topic's partitions a key lies. It is murmur2
// as Kafka's Java client has it, so every common client agrees (trap T22), and
// it is what the producer here does. It panics when partitions is not positive:
// such a topic does not exist.
func Partition(key []byte, partitions int32) int32 {
	if partitions <= 0 {
		panic("kafka: Partition of a topic without partitions")
	}
	return int32(murmur2(key)&0x7fffffff) % partitions
}

// murmur2 is Austin Appleby's MurmurHash2 (32 bits, little endian) with the
// seed that Kafka chose.
func murmur2(b []byte) uint32 {
	const seed, m = 0x9747b28c, 0x5bd1e995
	h := uint32(seed) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		k = (k ^ k>>24) * m
		h = h*m ^ k
	}
	if len(b) > 0 {
		var tail uint32
		for i, c := range b {
			tail |= uint32(c) << (8 * i)
		}
		h = (h ^ tail) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
