package wire

// ReadCallback reads without encoding/json, or says no.
func ReadCallback(value []byte) (*Callback, bool) {
	var c Callback
	ok := read(value, &c)
	return &c, ok
}
