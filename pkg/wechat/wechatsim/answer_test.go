package wechatsim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/pkg/wechat"
)

const sampleUser = "oZx81wQk2Lr7nVb0TtYpSdUeGhA4"

func testSealer(t *testing.T, mode string) sealer {
	t.Helper()
	s, err := newSealer(testAccount(mode))
	require.NoError(t, err)
	return s
}

func TestEverySampleReplyIsAccepted(t *testing.T) {
	files, err := filepath.Glob("../testdata/reply/reply-*.xml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 8)
	for _, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		judged, _, err := testSealer(t, ModePlain).answerTo(Text(sampleUser, "x"), body)
		require.NoError(t, err, file)
		require.Equal(t, JudgedPassive, judged, file)
	}
}

func passiveText(to, from, content string) string {
	return fmt.Sprintf("<xml><ToUserName><![CDATA[%s]]></ToUserName><FromUserName><![CDATA[%s]]></FromUserName>"+
		"<CreateTime>1893456002</CreateTime><MsgType><![CDATA[text]]></MsgType><Content><![CDATA[%s]]></Content></xml>", to, from, content)
}

func TestAnswersAreJudgedAsWeChatDoes(t *testing.T) {
	plain := passiveText(sampleUser, testGhID, "hi")
	for name, c := range map[string]struct {
		mode, body, want string
		stim             Stimulus
	}{
		"success":                     {ModeSafe, "success", JudgedSuccess, Text(sampleUser, "x")},
		"empty":                       {ModeSafe, "", JudgedEmpty, Text(sampleUser, "x")},
		"success with quotes":         {ModePlain, `"success"`, JudgedIllegal, Text(sampleUser, "x")},
		"success with a line end":     {ModePlain, "success\n", JudgedIllegal, Text(sampleUser, "x")},
		"JSON":                        {ModePlain, `{"code":0}`, JudgedIllegal, Text(sampleUser, "x")},
		"an HTML page":                {ModePlain, "<html><body>oops</body></html>", JudgedIllegal, Text(sampleUser, "x")},
		"plain reply in plain mode":   {ModePlain, plain, JudgedPassive, Text(sampleUser, "x")},
		"plain reply in compatible":   {ModeCompatible, plain, JudgedPassive, Text(sampleUser, "x")},
		"plain reply in safe mode":    {ModeSafe, plain, JudgedIllegal, Text(sampleUser, "x")},
		"reply to a position":         {ModePlain, plain, JudgedIllegal, Location(sampleUser)},
		"reply to a receipt":          {ModePlain, plain, JudgedIllegal, templateFinish(sampleUser, 1, "success")},
		"reply to a menu press":       {ModePlain, plain, JudgedPassive, Menu(sampleUser, "K")},
		"reply to somebody else":      {ModePlain, passiveText("oOther", testGhID, "hi"), JudgedIllegal, Text(sampleUser, "x")},
		"names not swapped":           {ModePlain, passiveText(testGhID, sampleUser, "hi"), JudgedIllegal, Text(sampleUser, "x")},
		"text without content":        {ModePlain, passiveText(sampleUser, testGhID, ""), JudgedIllegal, Text(sampleUser, "x")},
		"longer than any reply":       {ModePlain, strings.Repeat("x", maxAnswer+1), JudgedIllegal, Text(sampleUser, "x")},
		"encrypted reply, plain mode": {ModePlain, encrypted(t, plain, testToken), JudgedIllegal, Text(sampleUser, "x")},
		"encrypted reply, safe mode":  {ModeSafe, encrypted(t, plain, testToken), JudgedPassive, Text(sampleUser, "x")},
		"encrypted, wrong token":      {ModeSafe, encrypted(t, plain, "other"), JudgedIllegal, Text(sampleUser, "x")},
		"encrypted in compatible":     {ModeCompatible, encrypted(t, plain, testToken), JudgedPassive, Text(sampleUser, "x")},
	} {
		t.Run(name, func(t *testing.T) {
			judged, shown, err := testSealer(t, c.mode).answerTo(c.stim, []byte(c.body))
			require.Equal(t, c.want, judged)
			require.Equal(t, judged == JudgedIllegal, err != nil)
			if judged == JudgedPassive {
				require.Equal(t, "hi", shown)
			}
		})
	}
}

func encrypted(t *testing.T, plain, token string) string {
	t.Helper()
	key, err := wechat.DecodeAESKey(testAESKey)
	require.NoError(t, err)
	text, err := wechat.Encrypt(key, testAppID, random16(), []byte(plain))
	require.NoError(t, err)
	return fmt.Sprintf("<xml><Encrypt><![CDATA[%s]]></Encrypt><MsgSignature>%s</MsgSignature><TimeStamp>12</TimeStamp><Nonce>n</Nonce></xml>",
		text, wechat.Signature(token, "12", "n", text))
}

func TestNewsCountsDependOnTheCallback(t *testing.T) {
	news := func(n, items int) []byte {
		return []byte(fmt.Sprintf("<xml><ToUserName>%s</ToUserName><FromUserName>%s</FromUserName><CreateTime>1</CreateTime>"+
			"<MsgType>news</MsgType><ArticleCount>%d</ArticleCount><Articles>%s</Articles></xml>",
			sampleUser, testGhID, n, strings.Repeat("<item><Title>t</Title></item>", items)))
	}
	for _, c := range []struct {
		stim     Stimulus
		n, items int
		want     string
	}{
		{Text(sampleUser, "x"), 1, 1, JudgedPassive},
		{Text(sampleUser, "x"), 2, 2, JudgedIllegal},
		{Menu(sampleUser, "k"), 8, 8, JudgedPassive},
		{Menu(sampleUser, "k"), 9, 9, JudgedIllegal},
		{Menu(sampleUser, "k"), 2, 1, JudgedIllegal},
	} {
		judged, _, _ := testSealer(t, ModePlain).answerTo(c.stim, news(c.n, c.items))
		require.Equal(t, c.want, judged, "%+v", c)
	}
}
