package wechatsim

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func templateTo(openid, template, clientMsgID, data string) string {
	return fmt.Sprintf(`{"touser":%q,"template_id":%q,"client_msg_id":%q,"data":%s}`, openid, template, clientMsgID, data)
}

const someData = `{"thing1":{"value":"订单已发货"}}`

func TestClientMsgIDIsRememberedTenMinutes(t *testing.T) {
	s := quietSim(t, nil)
	ids, err := s.Followers("", 2)
	require.NoError(t, err)
	token := stable(t, s, false).Token
	send := func(user, id string) int64 {
		a := post(t, s, PathTemplateSend, token, templateTo(user, "T", id, someData))
		require.Zero(t, a.Errcode, a.Errmsg)
		return a.MsgID
	}
	first := send(ids[0], "c1")
	require.Equal(t, first, send(ids[0], "c1"))
	require.NotEqual(t, first, send(ids[1], "c1"), "another user is another message")
	require.NotEqual(t, first, send(ids[0], "c2"))
	require.NoError(t, s.Advance(10*time.Minute-time.Second))
	require.Equal(t, first, send(ids[0], "c1"))
	require.NoError(t, s.Advance(time.Second))
	require.NotEqual(t, first, send(ids[0], "c1"))
	v := s.Verdict(0)
	require.EqualValues(t, 2, v.Pushes.Absorbed)
	require.EqualValues(t, 1, v.Pushes.Doubled, "beyond the memory the user sees it again")
}

func TestRepeatedClientMsgIDSwitch(t *testing.T) {
	for choice, check := range map[string]func(t *testing.T, first, second answerOf){
		RepeatSameMsgID: func(t *testing.T, first, second answerOf) { require.Equal(t, first.MsgID, second.MsgID) },
		RepeatNewMsgID:  func(t *testing.T, first, second answerOf) { require.NotEqual(t, first.MsgID, second.MsgID) },
		RepeatError:     func(t *testing.T, _, second answerOf) { require.Equal(t, 44007, second.Errcode) },
	} {
		t.Run(choice, func(t *testing.T) {
			s := quietSim(t, func(c *Config) { c.Open.RepeatedClientMsgID = choice })
			token := stable(t, s, false).Token
			body := templateTo(anyone(t, s), "T", "c1", someData)
			check(t, post(t, s, PathTemplateSend, token, body), post(t, s, PathTemplateSend, token, body))
			require.EqualValues(t, 1, s.Verdict(0).Pushes.Visible)
		})
	}
}

func TestTemplatesAndValuesAreChecked(t *testing.T) {
	s := quietSim(t, func(c *Config) {
		c.Accounts[0].Templates = []Template{
			{ID: "T", Title: "发货", Content: "{{thing1.DATA}} {{ amount4.DATA }}"},
			{ID: "S", Kind: "subscribe", Content: "{{thing1.DATA}}"},
		}
	})
	user, token := anyone(t, s), stable(t, s, false).Token
	for _, c := range []struct {
		path, template, data string
		want                 int
	}{
		{PathTemplateSend, "T", `{"thing1":{"value":"a"},"amount4":{"value":"¥39.80"}}`, 0},
		{PathTemplateSend, "T", `{"thing1":{"value":"a"}}`, 47003},
		{PathTemplateSend, "T", `{"thing1":{"value":"一二三四五六七八九十一二三四五六七八九十一"},"amount4":{"value":"1"}}`, 47003},
		{PathTemplateSend, "T", `{"thing1":"short form","amount4":{"value":"1"}}`, 47001},
		{PathTemplateSend, "S", someData, 40037},
		{PathTemplateSend, "none", someData, 40037},
		{PathBizSend, "T", someData, 40037},
		{PathBizSend, "S", someData, 0},
		{PathBizSend, "S", `{}`, 47003},
	} {
		a := post(t, s, c.path, token, templateTo(user, c.template, "", c.data))
		require.Equal(t, c.want, a.Errcode, "%+v: %s", c, a.Errmsg)
	}
	a := post(t, s, PathTemplateSend, token, templateTo(user, "T", "", `{"amount4":{"value":"1"}}`))
	require.Contains(t, a.Errmsg, "argument invalid! data.thing1.value is empty rid: ")
}

func TestWhoDoesNotFollowGetsNoTemplate(t *testing.T) {
	s := quietSim(t, nil)
	user, token := anyone(t, s), stable(t, s, false).Token
	userActs(s, Unsubscribe(user))
	require.Equal(t, 43004, post(t, s, PathTemplateSend, token, templateTo(user, "T", "", someData)).Errcode)
	require.Equal(t, 40003, post(t, s, PathTemplateSend, token, templateTo("oNobody", "T", "", someData)).Errcode)
}

func TestSubscriptionCreditsAreUsedUp(t *testing.T) {
	b := newBot(t, ModePlain)
	cfg := testConfig(ModePlain)
	cfg.Limits.SubscriptionCredits = 1
	cfg.Open.BizSendMsgID = true
	s := newSim(t, cfg, b)
	user, token := anyone(t, s), stable(t, s, false).Token
	biz := func() answerOf { return post(t, s, PathBizSend, token, templateTo(user, "S", "", someData)) }
	require.NotZero(t, biz().MsgID)
	require.Equal(t, 43101, biz().Errcode)
	control(t, s, http.MethodPost, "subscribe_msg", `{"templates":["S"],"accept":true}`, http.StatusOK)
	require.Zero(t, biz().Errcode)
	require.Equal(t, 43101, biz().Errcode)
	control(t, s, http.MethodPost, "subscribe_msg", `{"templates":["S"],"accept":false}`, http.StatusOK)
	require.Equal(t, 43101, biz().Errcode)
	got := b.received()
	require.Equal(t, "accept", got[0].fields["SubscribeStatusString"])
}

func TestReceiptScripts(t *testing.T) {
	const delay = 100 * time.Millisecond
	for name, c := range map[string]struct {
		faults    []Fault
		after     time.Duration // when the receipts have come, counted from the answer
		statuses  []string
		sameIDs   bool
		elsewhere bool
	}{
		"normal":  {nil, delay, []string{"success"}, true, false},
		"early":   {[]Fault{{Do: ReceiptEarly}}, 0, []string{"success"}, true, false},
		"twice":   {[]Fault{{Do: ReceiptTwice}}, delay, []string{"success", "success"}, true, false},
		"late":    {[]Fault{{Do: ReceiptLate, DelayMS: 60_000}}, time.Minute, []string{"success"}, true, false},
		"never":   {[]Fault{{Do: ReceiptNever}}, time.Hour, nil, true, false},
		"foreign": {[]Fault{{Do: ReceiptForeign}}, delay, []string{"success", "success"}, false, false},
		"blocked": {[]Fault{{Do: ReceiptStatus, Outcome: "failed:user block"}}, delay, []string{"failed:user block"}, true, false},
		"other":   {[]Fault{{Do: ReceiptNever, Account: testGhID, OpenID: "oNobody"}}, delay, []string{"success"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, b := bubbleSim(t, testConfig(ModeSafe), nil)
				require.NoError(t, s.SetFaults(c.faults...))
				token := stable(t, s, false).Token
				a := post(t, s, PathTemplateSend, token, templateTo(anyone(t, s), "T", "c1", someData))
				require.Zero(t, a.Errcode)
				if c.after > 0 {
					require.Empty(t, b.received())
					passes(c.after)
					synctest.Wait()
				}
				var statuses []string
				same := true
				for _, r := range b.received() {
					statuses = append(statuses, r.fields["Status"])
					same = same && r.fields["MsgID"] == fmt.Sprint(a.MsgID)
				}
				require.Equal(t, c.statuses, statuses)
				require.Equal(t, c.sameIDs, same)
				for _, f := range s.Faults() {
					require.Equal(t, c.elsewhere, f.Hits == 0)
				}
			})
		})
	}
}

func TestIdleWaitsForReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := bubbleSim(t, testConfig(ModePlain), nil)
		token := stable(t, s, false).Token
		require.NoError(t, s.SetFaults(Fault{Do: ReceiptLate, DelayMS: 5000}))
		require.Zero(t, post(t, s, PathTemplateSend, token, templateTo(anyone(t, s), "T", "", someData)).Errcode)
		begun := time.Now()
		require.NoError(t, s.Idle(t.Context()))
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.Len(t, b.received(), 1)
	})
}

func TestWhoBlocksTheAccountIsToldByTheReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := bubbleSim(t, testConfig(ModePlain), nil)
		user := anyone(t, s)
		require.True(t, s.accounts[0].setRefuses(user, true))
		token := stable(t, s, false).Token
		require.Zero(t, post(t, s, PathTemplateSend, token, templateTo(user, "T", "", someData)).Errcode)
		require.Zero(t, post(t, s, PathBizSend, token, templateTo(user, "S", "", someData)).Errcode)
		passes(time.Second)
		synctest.Wait()
		got := b.received()
		require.Len(t, got, 2)
		if got[0].fields["Event"] != EventTemplateFinish {
			got[0], got[1] = got[1], got[0]
		}
		require.Equal(t, "failed:user block", got[0].fields["Status"])
		require.Equal(t, EventSubscribeSent, got[1].fields["Event"])
		require.Equal(t, "9001", got[1].fields["ErrorCode"])
	})
}
