package wechatsim

// Verdict is what the journal proves. Counts named lost, doubled, out_of_order
// and unexpected are 0 in a right history.
type Verdict struct {
	// Complete is false when something could not be followed; then a zero
	// elsewhere proves nothing.
	Complete bool `json:"complete"`
	// OK is Complete with nothing lost, doubled, out of order or unexpected.
	OK bool `json:"ok"`

	Callbacks CallbackVerdict     `json:"callbacks"`
	Replies   ReplyVerdict        `json:"replies"`
	Pushes    PushVerdict         `json:"pushes"`
	Receipts  ReceiptVerdict      `json:"receipts"`
	API       map[string]APIUsage `json:"api"`
	Journal   JournalVerdict      `json:"journal"`
	// Anomalies are the first findings in detail, at most 50.
	Anomalies []Anomaly `json:"anomalies,omitempty"`
}

// CallbackVerdict counts callbacks of users (receipts are apart) and the
// answers to every delivery.
type CallbackVerdict struct {
	Sent int64 `json:"sent"`
	// Acked had a delivery that was accepted; Refused had all tries fail;
	// Skipped was never sent because the account was paused; InFlight is open.
	Acked    int64 `json:"acked"`
	Refused  int64 `json:"refused"`
	Skipped  int64 `json:"skipped"`
	InFlight int64 `json:"in_flight"`
	// Deliveries are tries; Repeats are tries after the first of a callback,
	// RepeatsAfterAck those although one had been accepted.
	Deliveries      int64 `json:"deliveries"`
	Repeats         int64 `json:"repeats"`
	RepeatsAfterAck int64 `json:"repeats_after_ack"`
	// UserRepeats are presses of the same menu again.
	UserRepeats int64 `json:"user_repeats"`
	// ErrorsShown is how often the user read that the account is out of order.
	ErrorsShown int64            `json:"errors_shown"`
	Answers     map[string]int64 `json:"answers"`
	// Ack times of accepted deliveries, from sending to the complete answer.
	AckP50Ms float64 `json:"ack_p50_ms"`
	AckP99Ms float64 `json:"ack_p99_ms"`
	AckMaxMs float64 `json:"ack_max_ms"`
}

// ReplyVerdict joins replies with the callbacks that caused them.
type ReplyVerdict struct {
	// Expected counts causes with at least one accepted delivery that want a reply.
	Expected int64 `json:"expected"`
	Answered int64 `json:"answered"`
	// Pending are unanswered but younger than the grace period; Lost are older.
	Pending int64 `json:"pending"`
	Lost    int64 `json:"lost"`
	// Refused had their reply refused by WeChat for good: the window was closed or used
	// up, or the user blocks messages. Expected is the sum of these four.
	Refused int64 `json:"refused"`
	// DoubledRaw counts replies beyond the wanted number that reached WeChat,
	// Doubled those of them that the user sees.
	DoubledRaw int64 `json:"doubled_raw"`
	Doubled    int64 `json:"doubled"`
	// OutOfOrder counts first replies that came after the first reply to a
	// message that the same user sent later, after the earlier one was acked.
	OutOfOrder int64 `json:"out_of_order"`
	// Unexpected is the sum of Invented (no cause), Misdirected (another user)
	// and CrossAccount (another account).
	Unexpected   int64 `json:"unexpected"`
	Invented     int64 `json:"invented"`
	Misdirected  int64 `json:"misdirected"`
	CrossAccount int64 `json:"cross_account"`
	// Visible are replies the user saw; Passive those that came with the ack.
	Visible int64 `json:"visible"`
	Passive int64 `json:"passive"`
	// ToRepeats answer a user's own repeat; a server may also leave those be.
	ToRepeats int64 `json:"to_repeats"`
	// Notices are passive answers that do not name their cause, such as a
	// fallback text: they answer it unless a real reply comes.
	Notices int64 `json:"notices"`
	// Untracked are replies to callbacks without a mark.
	Untracked int64 `json:"untracked"`
}

// PushVerdict counts template and subscription sends.
type PushVerdict struct {
	Raw     int64 `json:"raw"`
	Visible int64 `json:"visible"`
	// Absorbed were repeats that client_msg_id kept from the user.
	Absorbed int64 `json:"absorbed"`
	// Doubled are visible again for the same user and client_msg_id, or for the
	// same announced push.
	Doubled     int64 `json:"doubled"`
	Expected    int64 `json:"expected"`
	Lost        int64 `json:"lost"`
	Pending     int64 `json:"pending"`
	Misdirected int64 `json:"misdirected"`
}

// ReceiptVerdict counts result events.
type ReceiptVerdict struct {
	Due       int64 `json:"due"`
	Delivered int64 `json:"delivered"`
	Refused   int64 `json:"refused"`
}

// APIUsage counts calls of one path and their errcodes.
type APIUsage struct {
	Calls  int64         `json:"calls"`
	Errors map[int]int64 `json:"errors,omitempty"`
	Faults int64         `json:"faults,omitempty"`
}

// JournalVerdict tells how much history stands behind the verdict.
type JournalVerdict struct {
	Entries uint64 `json:"entries"`
	// Dropped left memory; the verdict has seen them all the same.
	Dropped uint64 `json:"dropped"`
	// Unfollowed entries came after the judge's memory was full.
	Unfollowed int64  `json:"unfollowed,omitempty"`
	FileError  string `json:"file_error,omitempty"`
}

// Anomaly is one finding with the smallest slice of history that shows it.
type Anomaly struct {
	Kind    string `json:"kind"`
	Seq     uint64 `json:"seq"`
	At      int64  `json:"at_ns"`
	Account string `json:"account"`
	OpenID  string `json:"openid"`
	Token   string `json:"token,omitempty"`
	Detail  string `json:"detail"`
}
