package wechat

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A subscription report has one identity and one report per List item.
func TestSubscriptionReceiptPerItem(t *testing.T) {
	doc := strings.Replace(string(callbackSamples(t)["event-subscribe_msg_sent_event"]), "</List>",
		"</List><List><TemplateId>T2</TemplateId><MsgID>7</MsgID><ErrorCode>43101</ErrorCode><ErrorStatus>refused</ErrorStatus></List>"+
			"<List><TemplateId>T3</TemplateId><ErrorCode>x</ErrorCode></List>", 1)
	m := parse(t, doc, sampleOpenID)
	require.False(t, m.Quarantined, m.Reason)
	require.Len(t, m.Identities("bank"), 3)
	require.Equal(t, "7", m.Identities("bank")[1].MsgID)
	items := m.Receipts()
	require.Len(t, items, 3)
	require.Equal(t, []Outcome{OutcomeDelivered, OutcomeRefused, OutcomeUnknown},
		[]Outcome{items[0].Outcome, items[1].Outcome, items[2].Outcome})
}

// The documentation named the wrapper of the change event differently once.
func TestEitherWrapper(t *testing.T) {
	doc := string(callbackSamples(t)["event-subscribe_msg_change_event"])
	want := parse(t, doc, "").Choices()
	require.Len(t, want, 1)
	require.False(t, want[0].Accepted)
	require.Equal(t, want, parse(t, strings.ReplaceAll(doc, "SubscribeMsgChangeEvent", "SubscribeMsgPopupEvent"), "").Choices())
	bare := strings.NewReplacer("<SubscribeMsgChangeEvent>", "", "</SubscribeMsgChangeEvent>", "").Replace(doc)
	require.Equal(t, want, parse(t, bare, "").Choices())
}

func TestParseStatus(t *testing.T) {
	for status, want := range map[string]struct {
		outcome Outcome
		reason  string
	}{
		"success":               {OutcomeDelivered, ""},
		" Success \n":           {OutcomeDelivered, ""},
		"failed:user block":     {OutcomeRefused, "user block"},
		"failed: user block":    {OutcomeRefused, "user block"},
		"failed: system failed": {OutcomeFailed, "system failed"},
		"FAILED:Freq Limit":     {OutcomeFailed, "Freq Limit"},
		"failed:a:b":            {OutcomeFailed, "a:b"},
		"failed":                {OutcomeFailed, ""},
		"success:not":           {OutcomeUnknown, "success:not"},
		"successful":            {OutcomeUnknown, "successful"},
		"":                      {OutcomeUnknown, ""},
		"pending review":        {OutcomeUnknown, "pending review"},
	} {
		outcome, reason := ParseStatus(status)
		require.Equal(t, want.outcome, outcome, status)
		require.Equal(t, want.reason, reason, status)
	}
	_, reason := ParseStatus("failed:" + strings.Repeat("长", 1000))
	require.LessOrEqual(t, len(reason), maxReason)
	require.True(t, isClean(reason))
}

func TestParseMassStatus(t *testing.T) {
	for status, want := range map[string]MassStatus{
		"send success": {OutcomeDelivered, 0, "send success"},
		"sendsuccess":  {OutcomeDelivered, 0, "sendsuccess"},
		"send fail":    {OutcomeFailed, 0, "send fail"},
		"err(30003)":   {OutcomeFailed, 30003, "err(30003)"},
		"err(x)":       {OutcomeUnknown, 0, "err(x)"},
		"":             {OutcomeUnknown, 0, ""},
	} {
		require.Equal(t, want, ParseMassStatus(status))
	}
}
