// Package figures makes the figures of the papers again, each from a run of this
// code: Figures 6, 7 and 8 of paper 000 (the guard before a slow system) and
// Figures 7, 8 (robots that take at a set speed), 12 and 13 (a business system that
// sends while WeChat is slow) of paper 003.
//
// Idea: a figure is a scene (a system that slows down when many call it, users,
// pkg/guard or package robot between them, a real or an embedded engine), a few
// runs of it, and claims about the shape of what was measured. Nothing is
// simulated but the system and the users; times are those of the clock.
//
// Invariant: what is drawn was measured in this run, and says in small print by
// which command, on what, when and from which commit. A claim that does not hold
// is reported and fails the run; the picture is written all the same, since it
// shows why.
//
// The short form has the same scenes with fewer and shorter runs, for CI, and
// claims about shapes: zero, a step, one call per resource, three times as many.
// A scene that the machine is too busy to play breaks the claims that say so
// (Claim.Timed), so the short form wants the machine for itself as well.
//
// On failure (an engine is away, ctx ends) the figures made so far are there and
// the error says which one is not.
package figures
