package backend

// Decode reads an answer as Call does, for whoever wants to see what templates
// would make of it.
func Decode(body []byte) (any, error) { return decode(body) }
