package ratelimit

// waiters is a heap: lowest priority number first, then first come.
type waiters []*waiter

func (q waiters) Len() int { return len(q) }

func (q waiters) Less(i, j int) bool {
	if q[i].priority != q[j].priority {
		return q[i].priority < q[j].priority
	}
	return q[i].arrival < q[j].arrival
}

func (q waiters) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for container/heap.
func (q *waiters) Push(x any) {
	w := x.(*waiter)
	w.index = len(*q)
	*q = append(*q, w)
}

// Pop is for container/heap.
func (q *waiters) Pop() any {
	old := *q
	last := len(old) - 1
	w := old[last]
	old[last] = nil
	*q = old[:last]
	return w
}
