package kafka

// fifo is a queue on a slice; the room at its front is reclaimed when it is
// larger than what is queued, so push and pop cost O(1) on average.
type fifo[T any] struct {
	s    []T
	head int
}

func (f *fifo[T]) len() int { return len(f.s) - f.head }

func (f *fifo[T]) push(v T) { f.s = append(f.s, v) }

func (f *fifo[T]) front() T { return f.s[f.head] }

func (f *fifo[T]) pop() T {
	var zero T
	v := f.s[f.head]
	f.s[f.head] = zero
	f.head++
	switch {
	case f.head == len(f.s):
		f.s, f.head = f.s[:0], 0
		if cap(f.s) > 1024 {
			f.s = nil
		}
	case f.head > 32 && f.head > len(f.s)/2:
		n := copy(f.s, f.s[f.head:])
		clear(f.s[n:])
		f.s, f.head = f.s[:n], 0
	}
	return v
}

func (f *fifo[T]) removeIf(match func(T) bool) {
	keep := f.s[:0]
	for _, v := range f.s[f.head:] {
		if !match(v) {
			keep = append(keep, v)
		}
	}
	clear(f.s[len(keep):])
	f.s, f.head = keep, 0
}
