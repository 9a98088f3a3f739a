package wechat

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/fault"
)

// Forwarder is WeChat's side of a callback: it signs a message document as
// WeChat would for one account, and reads what the account's server answers. A
// server that has always been asked by WeChat sees no difference. It may be
// used by many goroutines.
type Forwarder struct {
	mode         Mode
	appID, token string
	key          []byte
}

// NewForwarder prepares the keys of an account. Only the current ones count:
// previous ones and freshness are matters of whoever is asked. Errors name the
// field to correct and never show a value.
func NewForwarder(c Credentials) (*Forwarder, error) {
	v, err := NewVerifier(Credentials{AppID: c.AppID, Token: c.Token, EncodingAESKey: c.EncodingAESKey, Mode: c.Mode})
	if err != nil {
		return nil, err
	}
	f := &Forwarder{mode: v.mode, appID: c.AppID, token: c.Token}
	if len(v.keys) > 0 {
		f.key = v.keys[0].raw
	}
	return f, nil
}

// Forward gives the query string and the body of one delivery of a document
// that openid caused at the account ghID. Timestamp, nonce, signatures and
// ciphertext are new each time, as they are when WeChat repeats a callback; what
// identifies the message is in the document and stays.
func (f *Forwarder) Forward(ghID, openid string, doc []byte, nonce string, now time.Time) (query string, body []byte, err error) {
	q := forwarded{timestamp: strconv.FormatInt(now.Unix(), 10), nonce: nonce}
	q.signature = Signature(f.token, q.timestamp, nonce)
	if IsOpenID(openid) {
		q.openid = openid
	}
	if f.mode == ModePlain {
		return q.encode(), doc, nil
	}
	text, err := Encrypt(f.key, f.appID, nil, doc)
	if err != nil {
		return "", nil, err
	}
	q.msgSignature = Signature(f.token, q.timestamp, nonce, text)
	element := "<Encrypt><![CDATA[" + text + "]]></Encrypt>\n</xml>"
	if f.mode == ModeCompatible {
		if head, ok := strings.CutSuffix(strings.TrimSpace(string(doc)), "</xml>"); ok {
			return q.encode(), []byte(head + element), nil
		}
	}
	var b strings.Builder
	b.WriteString("<xml>")
	writeCDATA(&b, "ToUserName", ghID)
	b.WriteString("\n" + element)
	return q.encode(), []byte(b.String()), nil
}

// forwarded is a query string in WeChat's order. Its values need no escaping:
// digits, hexadecimal digits, and an openid of harmless characters.
type forwarded struct{ signature, timestamp, nonce, openid, msgSignature string }

func (q forwarded) encode() string {
	s := "signature=" + q.signature + "&timestamp=" + q.timestamp + "&nonce=" + q.nonce
	if q.openid != "" {
		s += "&openid=" + q.openid
	}
	if q.msgSignature != "" {
		s += "&encrypt_type=aes&msg_signature=" + q.msgSignature
	}
	return s
}

// What Read refuses. The texts quote nothing of the answer.
var (
	errNoAnswer   = errors.New("it is neither success, nor empty, nor a passive answer in XML")
	errNotSealed  = errors.New("it is not encrypted, and the account is in safe mode")
	errSealed     = errors.New("it is encrypted, and the account is in plain mode")
	errSignature  = errors.New("its MsgSignature does not match: is token that of the account?")
	errStructure  = errors.New("its XML is not that of a passive answer")
	errNotAllowed = errors.New("its MsgType is none that WeChat takes as an answer")
)

// Read reads the body of a server's answer to a delivery. ok is false if the
// server only acknowledges: the body is empty or the word success. An encrypted
// answer's signature is checked before it is decrypted. The error, of kind
// fault.Final, says what is wrong and quotes nothing.
func (f *Forwarder) Read(body []byte) (p Passive, ok bool, err error) {
	text := strings.TrimSpace(string(body))
	if text == "" || text == Success {
		return Passive{}, false, nil
	}
	if p, err = f.read([]byte(text)); err != nil {
		return Passive{}, false, fault.Wrap(fault.Final, "read passive answer", err)
	}
	return p, true, nil
}

func (f *Forwarder) read(doc []byte) (Passive, error) {
	root, err := answerRoot(doc)
	if err != nil {
		return Passive{}, err
	}
	sealed := strings.TrimSpace(root.Get("Encrypt"))
	switch {
	case sealed == "" && f.mode == ModeSafe:
		return Passive{}, errNotSealed
	case sealed == "":
		return passiveFrom(root)
	case f.mode == ModePlain:
		return Passive{}, errSealed
	}
	stamp, nonce := strings.TrimSpace(root.Get("TimeStamp")), strings.TrimSpace(root.Get("Nonce"))
	if !sameText(signature([]byte(sealed), f.token, stamp, nonce), strings.TrimSpace(root.Get("MsgSignature"))) {
		return Passive{}, errSignature
	}
	plain, err := Decrypt(f.key, f.appID, sealed)
	if err != nil {
		return Passive{}, err
	}
	if root, err = answerRoot(plain); err != nil {
		return Passive{}, err
	}
	return passiveFrom(root)
}

// answerRoot reads a document with the scanner for callbacks: the server's texts
// hold what users wrote just as well, and not every library quotes "]]>".
func answerRoot(doc []byte) (Element, error) {
	if len(doc) > MaxBody {
		return Element{}, fmt.Errorf("it has more than %d bytes", MaxBody)
	}
	inner, p := readProlog(doc)
	if p != prologClean {
		return Element{}, errNoAnswer
	}
	sc, reason := scanDocument(string(inner))
	if reason != "" {
		return Element{}, errStructure
	}
	return Element{nodes: sc.nodes, depth: 1}, nil
}

// passiveFrom reads the elements of an answer. Texts come out fit for JSON,
// whatever the server put in.
func passiveFrom(e Element) (Passive, error) {
	get := func(path ...string) string { return clean(e.Get(path...)) }
	p := Passive{
		ToUser: strings.TrimSpace(get("ToUserName")), FromUser: strings.TrimSpace(get("FromUserName")),
		CreateTime: e.int("CreateTime"), Type: strings.TrimSpace(get("MsgType")),
	}
	switch p.Type {
	case "text":
		p.Content = get("Content")
	case "image":
		p.MediaID = get("Image", "MediaId")
	case "voice":
		p.MediaID = get("Voice", "MediaId")
	case "video":
		p.MediaID, p.Title, p.Description = get("Video", "MediaId"), get("Video", "Title"), get("Video", "Description")
	case "music":
		p.Title, p.Description = get("Music", "Title"), get("Music", "Description")
		p.MusicURL, p.HQMusicURL, p.ThumbMediaID = get("Music", "MusicUrl"), get("Music", "HQMusicUrl"), get("Music", "ThumbMediaId")
	case "news":
		p.Articles = articlesFrom(e)
	case TransferToDesk:
		p.KfAccount = get("TransInfo", "KfAccount")
	default:
		return Passive{}, errNotAllowed
	}
	return p, nil
}

func articlesFrom(e Element) []Article {
	list, ok := e.first("Articles")
	if !ok {
		return nil
	}
	var out []Article
	for _, item := range list.All("item") {
		out = append(out, Article{
			Title: clean(item.Get("Title")), Description: clean(item.Get("Description")),
			URL: strings.TrimSpace(clean(item.Get("Url"))), PicURL: strings.TrimSpace(clean(item.Get("PicUrl"))),
		})
	}
	return out
}
