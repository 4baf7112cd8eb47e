package raw

// Frame types.
const (
	FrameMethod    = 1
	FrameHeader    = 2
	FrameBody      = 3
	FrameHeartbeat = 8
	FrameEnd       = 0xCE
)

// ID names a method: the class in the upper half, the method in the lower.
type ID uint32

func id(class, method uint16) ID { return ID(class)<<16 | ID(method) }

// The methods the tests speak about.
var (
	ConnectionStart     = id(10, 10)
	ConnectionStartOk   = id(10, 11)
	ConnectionSecure    = id(10, 20)
	ConnectionTune      = id(10, 30)
	ConnectionTuneOk    = id(10, 31)
	ConnectionOpen      = id(10, 40)
	ConnectionOpenOk    = id(10, 41)
	ConnectionClose     = id(10, 50)
	ConnectionCloseOk   = id(10, 51)
	ConnectionBlocked   = id(10, 60)
	ConnectionUnblocked = id(10, 61)
	UpdateSecret        = id(10, 70)
	UpdateSecretOk      = id(10, 71)

	ChannelOpen    = id(20, 10)
	ChannelOpenOk  = id(20, 11)
	ChannelFlow    = id(20, 20)
	ChannelFlowOk  = id(20, 21)
	ChannelClose   = id(20, 40)
	ChannelCloseOk = id(20, 41)

	ExchangeDeclare   = id(40, 10)
	ExchangeDeclareOk = id(40, 11)
	ExchangeDelete    = id(40, 20)
	ExchangeDeleteOk  = id(40, 21)

	QueueDeclare   = id(50, 10)
	QueueDeclareOk = id(50, 11)
	QueueBind      = id(50, 20)
	QueueBindOk    = id(50, 21)
	QueuePurge     = id(50, 30)
	QueuePurgeOk   = id(50, 31)
	QueueDelete    = id(50, 40)
	QueueDeleteOk  = id(50, 41)
	QueueUnbind    = id(50, 50)
	QueueUnbindOk  = id(50, 51)

	BasicQos          = id(60, 10)
	BasicQosOk        = id(60, 11)
	BasicConsume      = id(60, 20)
	BasicConsumeOk    = id(60, 21)
	BasicCancel       = id(60, 30)
	BasicCancelOk     = id(60, 31)
	BasicPublish      = id(60, 40)
	BasicReturn       = id(60, 50)
	BasicDeliver      = id(60, 60)
	BasicGet          = id(60, 70)
	BasicGetOk        = id(60, 71)
	BasicGetEmpty     = id(60, 72)
	BasicAck          = id(60, 80)
	BasicReject       = id(60, 90)
	BasicRecoverAsync = id(60, 100)
	BasicRecover      = id(60, 110)
	BasicRecoverOk    = id(60, 111)
	BasicNack         = id(60, 120)

	ConfirmSelect   = id(85, 10)
	ConfirmSelectOk = id(85, 11)

	TxSelect     = id(90, 10)
	TxSelectOk   = id(90, 11)
	TxCommit     = id(90, 20)
	TxCommitOk   = id(90, 21)
	TxRollback   = id(90, 30)
	TxRollbackOk = id(90, 31)
)

// Class and Method split an ID.
func (i ID) Class() uint16 { return uint16(i >> 16) }

// Method is the number within the class.
func (i ID) Method() uint16 { return uint16(i) }
