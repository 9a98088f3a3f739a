// Package bot asks a bot that has been answering WeChat's callbacks until now,
// and turns what it answers into replies of ours.
//
//	callback's original body ─▶ sign, encrypt ─▶ POST ─▶ passive answer ─▶ check ─▶ replies
//	                            (new for each try)       "success", "" ─▶ none
//
// The bot need not be changed: it is asked as WeChat asks it, with its own token,
// a timestamp and nonce of now, and the follower's openid; a try after the first
// is to it what WeChat's repeat is, with the same MsgId. It has more time than
// WeChat gives (the back end's timeout, up to 30 s), since the acknowledgement
// went out long before.
//
// Invariant: an answer reaches the follower who wrote, or nobody. One that names
// another receiver, another account, or is signed with another token is refused.
//
// On failure (no answer in time, 5xx, garbage, an answer that WeChat would not
// take) the error is of package fault, as for every back end, and the rule's
// fallback text is sent. The address is the operator's own setting, so S39, S40
// and S42 (what may be reached) do not apply to it; S41 and S43 to S47 do: no
// redirect, no login in the address, http and https only, no proxy of the
// environment, answers cut at max_response and timeout, TLS never weakened.
//
// What changes for the follower: a passive answer becomes a customer-service
// message, which uses up one of the messages that his action allows (five within
// 48 hours of a message, three within a minute of a menu click). What can only be
// done in the acknowledgement cannot be done here: a hand-over to the human desk.
package bot
