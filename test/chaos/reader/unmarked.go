package reader

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidegate/test/chaos/drive"
)

// Unmarked are replies whose text quotes nothing, such as the one for followers
// whom overload refuses. Which message each of them answers is in its letter. A
// follower's replies lie in one partition in the order in which he must see
// them, so what he is shown without a mark are these, one after the other: one
// that is shown twice, or behind a later one, is out of step with the letters or
// with the marked ones between, and the checker finds it.
type Unmarked struct {
	of map[follower][]string // marks of the messages that they answer
	n  int
}

type follower struct{ account, openid string }

// replyLetter is the part of a reply letter that is needed.
type replyLetter struct {
	ID         string `json:"id"`
	CallbackID string `json:"callback_id"`
	Account    string `json:"account"`
	OpenID     string `json:"openid"`
	Content    struct {
		Text string `json:"text"`
	} `json:"content"`
}

// ReadUnmarked reads the callbacks and the replies of a run.
func ReadUnmarked(ctx context.Context, broker string, callbacks, replies []string) (*Unmarked, error) {
	marks := map[string]string{} // by callback
	if _, err := each(ctx, broker, callbacks, func(r *kgo.Record) error {
		e, err := event(r)
		marks[e.ID] = e.Token
		return err
	}); err != nil {
		return nil, err
	}
	u, known := &Unmarked{of: map[follower][]string{}}, map[string]bool{}
	_, err := each(ctx, broker, replies, func(r *kgo.Record) error {
		var l replyLetter
		if err := json.Unmarshal(r.Value, &l); err != nil {
			return fmt.Errorf("record %s/%d:%d is no letter: %w", r.Topic, r.Partition, r.Offset, err)
		}
		if drive.FindMark([]byte(l.Content.Text)) != "" || known[l.ID] { // the sender knows a letter by its id
			return nil
		}
		known[l.ID] = true
		mark, ok := marks[l.CallbackID]
		if !ok {
			return fmt.Errorf("record %s/%d:%d answers the callback %s, which is not in the log", r.Topic, r.Partition, r.Offset, l.CallbackID)
		}
		f := follower{l.Account, l.OpenID}
		u.of[f] = append(u.of[f], mark)
		u.n++
		return nil
	})
	return u, err
}

// Len is how many there are. None of nil is none.
func (u *Unmarked) Len() int {
	if u == nil {
		return 0
	}
	return u.n
}

// Next gives the mark of the message that a follower's next reply without a mark
// answers, or "".
func (u *Unmarked) Next(account, openid string) string {
	if u == nil {
		return ""
	}
	f := follower{account, openid}
	if len(u.of[f]) == 0 {
		return ""
	}
	mark := u.of[f][0]
	u.of[f] = u.of[f][1:]
	return mark
}
