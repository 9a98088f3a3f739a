// Package chart draws small charts as SVG: lines or groups of bars, two axes, a
// legend, marked values and lines of small print. It is by hand because a figure
// that is committed should be a few kilobytes of text whose changes can be read.
//
// Colours come from a style sheet in the picture that follows the reader's light
// or dark scheme; series also differ by dash and by the form of their points, so
// that the picture can be read without colours.
//
// Invariant: the same chart gives the same bytes, and they are well-formed XML
// whatever the texts are. On failure (no points, a value that is no number, a
// negative value on a logarithmic axis) there is an error and no picture.
package chart
