package wire

import "strconv"

// The two letters that a robot makes for every callback also write their own
// JSON, as callbacks do. Their Encode is the function Encode for a caller whose
// letter lives on the stack: an interface would move it to the heap.

// Encode gives the record key, value and headers.
func (r *Reply) Encode() (key, value []byte, headers []Header, err error) {
	return seal(r.appendJSON(make([]byte, 0, r.sizeHint()+envelopeHint)), KindReply, r.ID, r.TraceParent, r.OpenID)
}

// Encode gives the record key, value and headers.
func (r *Receipt) Encode() (key, value []byte, headers []Header, err error) {
	return seal(r.appendJSON(make([]byte, 0, r.sizeHint()+envelopeHint)), KindReceipt, r.ID, r.TraceParent, r.OpenID)
}

func (r *Reply) sizeHint() int {
	return 560 + len(r.Content.Text) + len(r.Rule)
}

func (r *Reply) appendJSON(b []byte) []byte {
	b = appendText(append(b, `{"id":`...), r.ID)
	b = appendText(append(b, `,"identity_hash":`...), r.IdentityHash)
	b = appendText(append(b, `,"callback_id":`...), r.CallbackID)
	b = appendNumber(b, `,"ordinal":`, int64(r.Ordinal))
	b = appendText(append(b, `,"account":`...), r.Account)
	b = appendText(append(b, `,"openid":`...), r.OpenID)
	b = r.Content.appendJSON(append(b, `,"content":`...))
	b = appendText(append(b, `,"class":`...), r.Class)
	b = appendOptional(b, `,"rule":`, r.Rule)
	b = appendNumber(b, `,"received_at":`, r.ReceivedAt)
	b = appendNumber(b, `,"created_at":`, r.CreatedAt)
	b = appendOptionalNumber(b, `,"expires_at":`, r.ExpiresAt)
	b = appendOptional(b, `,"resend_of":`, r.ResendOf)
	b = appendOptional(b, `,"traceparent":`, r.TraceParent)
	return append(b, '}')
}

// appendJSON writes the usual content, text or one medium; what else there is and
// will be is left to encoding/json.
func (c *Content) appendJSON(b []byte) []byte {
	if *c != (Content{Type: c.Type, Text: c.Text, MediaID: c.MediaID}) {
		whole := *c // only what is unusual is moved to the heap
		other, err := marshalJSON(&whole)
		if err == nil {
			return append(b, other...)
		}
	}
	b = appendText(append(b, `{"type":`...), c.Type)
	b = appendOptional(b, `,"text":`, c.Text)
	b = appendOptional(b, `,"media_id":`, c.MediaID)
	return append(b, '}')
}

func (r *Receipt) sizeHint() int {
	return 560 + len(r.Reason) + len(r.Detail) + len(r.Reference)
}

func (r *Receipt) appendJSON(b []byte) []byte {
	b = appendText(append(b, `{"source":`...), r.Source)
	b = appendText(append(b, `,"message_kind":`...), string(r.MessageKind))
	b = appendOptional(b, `,"id":`, r.ID)
	b = appendOptional(b, `,"identity_hash":`, r.IdentityHash)
	b = appendText(append(b, `,"account":`...), r.Account)
	b = appendOptional(b, `,"openid":`, r.OpenID)
	b = appendOptional(b, `,"app":`, r.App)
	b = appendOptional(b, `,"lane":`, r.Lane)
	b = appendOptional(b, `,"template_id":`, r.TemplateID)
	b = appendOptional(b, `,"reference":`, r.Reference)
	b = appendOptional(b, `,"callback_id":`, r.CallbackID)
	b = appendOptional(b, `,"resend_of":`, r.ResendOf)
	b = appendText(append(b, `,"state":`...), string(r.State))
	b = appendOptional(b, `,"reason":`, r.Reason)
	b = appendOptionalNumber(b, `,"errcode":`, int64(r.ErrCode))
	b = appendOptional(b, `,"msg_id":`, r.MsgID)
	b = appendOptional(b, `,"event":`, r.Event)
	b = appendOptionalNumber(b, `,"attempt":`, int64(r.Attempt))
	b = appendOptional(b, `,"line":`, r.Line)
	b = appendOptional(b, `,"detail":`, r.Detail)
	if r.PossibleDuplicate {
		b = append(b, `,"possible_duplicate":true`...)
	}
	b = appendNumber(b, `,"at":`, r.At)
	b = appendOptionalNumber(b, `,"born_at":`, r.BornAt)
	b = appendSteps(b, r.Steps)
	b = appendOptional(b, `,"traceparent":`, r.TraceParent)
	return append(b, '}')
}

func appendSteps(b []byte, steps []Step) []byte {
	for i, s := range steps {
		if i == 0 {
			b = append(b, `,"steps":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendNumber(b, `{"at":`, s.At)
		b = appendText(append(b, `,"room":`...), s.Room)
		b = appendText(append(b, `,"what":`...), s.What)
		b = appendOptional(b, `,"detail":`, s.Detail)
		b = appendOptional(b, `,"line":`, s.Line)
		b = append(b, '}')
	}
	if len(steps) > 0 {
		b = append(b, ']')
	}
	return b
}

func appendNumber(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendOptionalNumber(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return appendNumber(b, name, n)
}
