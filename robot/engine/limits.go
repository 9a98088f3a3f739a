package engine

import "time"

// Limits of a rules file and of what one callback may cost. They are there so
// that a slip of the pen or hostile text ends in a clear error.
const (
	maxFile      = 1 << 20 // bytes of a rules file
	maxRules     = 2000    // rules in one file
	maxProblems  = 20      // problems told at once where a role reads the file
	allProblems  = 1000    // and where somebody asks for all of them
	maxWords     = 500     // texts in one list of a match
	maxPattern   = 512     // bytes of a regular expression
	maxMatched   = 8 << 10 // bytes of text that a regular expression sees
	maxTemplate  = 4 << 10 // bytes of one template's source
	maxSteps     = 10_000  // rounds of all range loops of one rendering
	maxRendered  = 64 << 10
	maxBodyDepth = 16
	maxMenuItems = 20

	maxQuestions = 20  // steps of a dialogue
	maxTries     = 10  // answers to one question
	maxVariables = 32  // of one dialogue
	maxVariable  = 512 // bytes of one
	minTimeout   = 10 * time.Second
	maxTimeout   = 24 * time.Hour

	// MaxReplies is the number of replies to one callback: WeChat allows no
	// more than five messages after a user's message.
	MaxReplies = 5
	// MaxText is the length of a text in bytes that WeChat takes (wechat.md
	// 4.2); what a template renders beyond it is cut at a character.
	MaxText = 2048
	// MaxCallTimeout bounds the timeout that a rule may give to a call.
	MaxCallTimeout = 30 * time.Second
	// DefaultValidFor is how long a reply may wait: WeChat's longest window.
	DefaultValidFor = 48 * time.Hour
)
