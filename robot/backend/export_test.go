package backend

// Decode lets the fuzz test reach the decoder.
var Decode = decode
