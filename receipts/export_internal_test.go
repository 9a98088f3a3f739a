package receipts

import "context"

// LookAtBands looks once, as the room does again and again.
func (r *Room) LookAtBands(ctx context.Context) {
	if err := r.bands.look(ctx); err != nil {
		panic(err)
	}
}
